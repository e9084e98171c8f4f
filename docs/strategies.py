"""The book's table of strategies, for docs/strategies.md."""

from __future__ import annotations

from collections import defaultdict

from reference_impl import strategies
from reference_impl.forms.base import Form
from reference_impl.page import Page

HEAD = "| strategy | parameters | gradients | optimizer state | a step moves | cases |\n|---|---|---|---|---|---|"


def table() -> str:
    """One row for each page: its mappings, its budget, and what it is run on, in Markdown."""
    forms: dict[str, list[Form]] = defaultdict(list)
    for form in strategies():
        forms[form.name].append(form)
    return "\n".join([HEAD, *(row(forms[name][0].page, forms[name]) for name in sorted(forms))])


def row(page: Page, forms: list[Form]) -> str:
    """The row of one page, without the loss that every distributed step reduces too."""
    lines = [line for line in page.communication.step if line.payload != "metrics"]
    moves = "<br>".join(dict.fromkeys(map(str, lines))) or "nothing"
    frameworks: dict[str, set[str]] = defaultdict(set)
    for form in forms:
        frameworks[form.model].add(form.framework)
    cases = "<br>".join(f"{model}: {', '.join(sorted(found))}" for model, found in sorted(frameworks.items()))
    link = f"[`{page.name}`](../reference_impl/strategies/{page.name}.py)"
    return f"| {link} | {page.parameters} | {page.gradients} | {page.optimizer} | {moves} | {cases} |"
