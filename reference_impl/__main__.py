"""``python -m reference_impl README.md`` writes the book's table of strategies into a file, between its two markers."""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path
from types import ModuleType

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


def insert(text: str, name: str, table: str) -> str:
    """A document with a table between the two markers of its name. Raises ``ValueError`` where it lacks one of them."""
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    head, found, rest = text.partition(begin)
    _, closed, tail = rest.partition(end)
    if not (found and closed):
        raise ValueError(f"the document has no {begin} … {end}: put both where the table shall stand")
    return f"{head}{begin}\n{table}\n{end}{tail}"


if __name__ == "__main__":
    for path in map(Path, sys.argv[1:]):
        path.write_text(insert(path.read_text(encoding="utf-8"), NAME, table()), encoding="utf-8")
