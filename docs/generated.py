"""``python -m docs.generated``, in a checkout: writes every part of a document that is made of the code.

A part stands between ``<!-- name -->`` and ``<!-- /name -->``; pictures are files of their own (`docs.pictures`). With
``--check`` it writes nothing, and fails where one is not what it would be today.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from docs import census, changelog, expectations, faults, pictures, planning, readme, realisations, sources, strategies
from meshproof.files import insert, replace_text
from tests.saboteurs.operators.matrix import kept, table

Part = tuple[str, str]

MADE: dict[Part, Callable[[], str]] = {
    ("README.md", "figures"): readme.figures,
    ("README.md", "page"): readme.page,
    ("docs/census.md", "census"): census.shown,
    ("docs/changelog.md", "releases"): changelog.releases,
    ("docs/changelog.md", "probes"): changelog.probes,
    ("docs/expectations.md", "known"): expectations.table,
    ("docs/faults.md", "faults"): lambda: table(kept()),
    ("docs/faults.md", "by-hand"): faults.by_hand,
    ("docs/planning.md", "chips"): planning.chip_table,
    ("docs/planning.md", "links"): planning.link_table,
    ("docs/planning.md", "models"): planning.model_table,
    ("docs/planning.md", "errata"): planning.errata,
    ("docs/realisations.md", "realisations"): realisations.table,
    ("docs/sources.md", "sources"): sources.tables,
    ("docs/strategies.md", "strategies"): strategies.table,
}
"""What makes each part, by file and name."""

RUN: dict[Part, Callable[[], str]] = {("README.md", "failure"): readme.failure}
"""Those that take a run of the suites."""


def stale(made: Mapping[Part, Callable[[], str]], root: Path = Path()) -> Iterator[str]:
    """The parts of documents under ``root`` that are not what is made today. Raises ``ValueError`` without markers."""
    for (path, name), make in made.items():
        text = (root / path).read_text(encoding="utf-8")
        if insert(text, name, make()) != text:
            yield f"{path}: {name} is out of date; `python -m docs.generated` writes it"


def write(made: Mapping[Part, Callable[[], str]]) -> None:
    """Write these parts."""
    for (path, name), make in made.items():
        document = Path(path)
        replace_text(document, insert(document.read_text(encoding="utf-8"), name, make()))


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        sys.exit("\n".join([*stale(MADE | RUN), *pictures.stale()]) or None)
    write(MADE | RUN)
    pictures.write()
