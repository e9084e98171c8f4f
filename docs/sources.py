"""The tables of docs/sources.md: what each source teaches, and where it is shown and checked."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from docs.planning import rows

FILE = Path(__file__).parent / "sources.toml"


@dataclass(frozen=True)
class Row:
    source: str
    section: str
    teaches: str
    shown: tuple[str, ...]
    checked: tuple[str, ...]
    but: str


def read() -> dict[str, list[Row]]:
    """The rows of each source, by its number and title."""
    told = tomllib.loads(FILE.read_text(encoding="utf-8"))["source"]
    return {
        f"{source['number']}, “{source['title']}”": [
            Row(source["number"], section, teaches, tuple(shown), tuple(checked), but)
            for section, teaches, shown, checked, but in source["rows"]
        ]
        for source in told
    }


def link(path: str) -> str:
    """A file of the checkout, from docs/."""
    name = Path(path).name if path.endswith(".md") else f"`{Path(path).name}`"
    return f"[{name}]({path.removeprefix('docs/') if path.startswith('docs/') else f'../{path}'})"


def tables() -> str:
    """A table for each source."""
    parts = []
    for title, own in read().items():
        cells = (
            (
                row.section,
                row.teaches,
                ", ".join(map(link, row.shown)),
                ", ".join(link(each) if "/" in each else each for each in row.checked),
                row.but or "–",
            )
            for row in own
        )
        headings = ("section", "teaches", "shown in", "checked by", "wrong, gone or open")
        parts.append(f"## {title}\n\n{rows(*headings, of=cells)}")
    return "\n\n".join(parts)
