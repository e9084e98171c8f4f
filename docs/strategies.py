"""``python -m docs.strategies README.md`` writes the book's table of strategies into a file, between its markers."""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path
from types import ModuleType

from meshproof.files import insert, replace_text
from reference_impl import strategies
from reference_impl.forms.base import Form

NAME = "strategies"
HEAD = "| strategy | parameters | gradients | optimizer state | a step moves | cases |\n|---|---|---|---|---|---|"


def table() -> str:
    """One row for each page: its mappings, its budget, and what it is run on, in Markdown."""
    forms: dict[ModuleType, list[Form]] = defaultdict(list)
    for form in strategies():
        forms[form.page].append(form)
    pages = sorted(forms, key=lambda page: page.__name__)
    return "\n".join([HEAD, *(row(page, forms[page]) for page in pages)])


def row(page: ModuleType, forms: list[Form]) -> str:
    """The row of one page. That every step reduces its metrics goes without saying."""
    name = page.__name__.rpartition(".")[2]
    lines = [line for line in page.COMMUNICATION.step if line.payload != "metrics"]
    moves = "<br>".join(dict.fromkeys(map(str, lines))) or "nothing"
    frameworks: dict[str, set[str]] = defaultdict(set)
    for form in forms:
        frameworks[form.model].add(form.framework)
    cases = "<br>".join(f"{model}: {', '.join(sorted(found))}" for model, found in sorted(frameworks.items()))
    link = f"[`{name}`](reference_impl/strategies/{name}.py)"
    return f"| {link} | {page.PARAMETERS} | {page.GRADIENTS} | {page.OPTIMIZER} | {moves} | {cases} |"


if __name__ == "__main__":
    for path in map(Path, sys.argv[1:]):
        replace_text(path, insert(path.read_text(encoding="utf-8"), NAME, table()))
