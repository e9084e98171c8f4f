"""The page of results, benchmarks/results/README.md, from the files beside it: ``python -m benchmarks.peers.page``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from meshproof.files import insert, replace_text

from .gpt_case import PEERS
from .measure import FRAMEWORKS, SCHEMA, SPEED

FOLDER = Path(__file__).parents[1] / "results"
NAME = "results"


def summarise(result: dict[str, Any]) -> str:
    """A result in a few lines of Markdown: what was measured, on which device, and how."""
    facts = {name: result["frameworks"][name]["facts"] for name in FRAMEWORKS}
    versions = {name: version for each in facts.values() for name, version in each["versions"].items()}
    known = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    ratio, judge = result["jax_over_torch"], result["judge"]
    verdict = f": {ratio['verdict']}" if result["measured"] == SPEED else ", which says nothing"
    identity = ", ".join(f"{name} {value}" for name, value in result["identity"].items())
    return "\n".join(
        [
            f"{result['size']} on {place(result)}, {result['time']}; measured: {result['measured']}",
            "",
            "| | seconds a step | tokens/s | MFU | peak memory |",
            "|---|---|---|---|---|",
            *(row(name, result["frameworks"][name]) for name in FRAMEWORKS),
            "",
            f"JAX takes {ratio['guess']:.2f} [{ratio['low']:.2f}, {ratio['high']:.2f}] of PyTorch's time{verdict}. "
            f"Losses differ by {result['losses_apart']:.1e} at most; judged by {judge['name']}.",
            "",
            f"- command: `{result['command']}`",
            f"- what: {identity}",
            f"- versions: {known}",
            f"- driver: {result['driver'] or 'none'}",
        ]
    )


def place(result: dict[str, Any]) -> str:
    """The device; for a CPU its model."""
    machine = result["frameworks"]["jax"]["facts"]["machine"]
    return f"1 × {machine['device_kind']}" if machine["host"] is None else machine["host"]


def row(name: str, found: dict[str, Any]) -> str:
    """A row with one framework's numbers; an unknown one is a dash."""
    seconds, memory, mfu = found["seconds_per_step"], found["peak_memory_bytes"], found["mfu"]
    return (
        f"| {name} | {seconds['median']:.4g} [{seconds['low']:.4g}, {seconds['high']:.4g}] "
        f"| {found['tokens_per_second']:,.0f} | {'–' if mfu is None else f'{mfu:.1%}'} "
        f"| {'–' if memory is None else f'{memory / 2**30:.1f} GiB'} |"
    )


def sections(folder: Path) -> Iterator[str]:
    """A section per file of a folder, then the sizes without a result. Raises ``ValueError`` for other files."""
    timed = set()
    for path in sorted(folder.glob("*.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        if result.get("schema") != SCHEMA:
            raise ValueError(f"{path} has schema {result.get('schema')!r}, expected {SCHEMA}; measure it again")
        if result["measured"] == SPEED:
            timed.add(result["size"])
        yield f"### {path.name}\n\n{summarise(result)}"
    missing = [size for size in PEERS if size not in timed]
    if missing:
        yield f"Not yet compared on an accelerator: {', '.join(missing)}."


def write(text: str, folder: Path) -> str:
    """Rewrite the part of the page between its markers."""
    return insert(text, NAME, "\n\n".join(sections(folder)))


if __name__ == "__main__":
    page = FOLDER / "README.md"
    replace_text(page, write(page.read_text(encoding="utf-8"), FOLDER))
