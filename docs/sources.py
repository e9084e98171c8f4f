"""The tables of docs/sources.md: what each source teaches, and where it is shown and checked."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from docs.planning import rows
from tests.documents import FENCED, HEADING, anchors

ROOT = Path(__file__).parents[1]
FILE = ROOT / "docs" / "sources.toml"


@dataclass(frozen=True)
class Row:
    """``words`` are of the section or of what it teaches: each page and each test named has one of them.

    A page is a file, or ``file.md#heading``; a check a clause, or ``file.py::test``.
    """

    source: str
    section: str
    teaches: str
    words: tuple[str, ...]
    shown: tuple[str, ...]
    checked: tuple[str, ...]
    but: str


def read(file: Path = FILE) -> dict[str, list[Row]]:
    """The rows of each source, by its number and title."""
    told = tomllib.loads(file.read_text(encoding="utf-8"))["source"]
    return {
        f"{source['number']}, “{source['title']}”": [
            Row(source["number"], section, teaches, tuple(words), tuple(shown), tuple(checked), but)
            for section, teaches, words, shown, checked, but in source["rows"]
        ]
        for source in told
    }


def link(place: str) -> str:
    """A page or a check of the checkout, from docs/; a clause by its name."""
    path, _, anchor = place.partition("#")
    file, _, test = path.partition("::")
    if "/" not in file:
        return file
    if anchor:
        heading, _ = sections(ROOT / file)[anchor]
        return f"[{Path(file).name}: {heading}]({place.removeprefix('docs/')})"
    return f"[`{test or Path(file).name}`](../{file})"


@cache
def sections(document: Path) -> dict[str, tuple[str, str]]:
    """The headings of a document by their anchors, each with the text below it, down to the next one."""
    _, *parts = HEADING.split(FENCED.sub("", document.read_text(encoding="utf-8")))
    return dict(zip(anchors(document), zip(parts[::2], parts[1::2], strict=True), strict=True))


def tables() -> str:
    """A table for each source."""
    headings = ("section", "teaches", "shown in", "checked by", "wrong, gone or open")
    parts = []
    for title, own in read().items():
        cells = (
            (
                row.section,
                row.teaches,
                ", ".join(map(link, row.shown)) or "–",
                ", ".join(map(link, row.checked)) or "–",
                row.but or "–",
            )
            for row in own
        )
        parts.append(f"## {title}\n\n{rows(*headings, of=cells)}")
    return "\n\n".join(parts)
