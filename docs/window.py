"""``python -m docs.window``: the suites on every stack of constraints/, and docs/compatibility.md of what they say.

Reports that are in ``--reports`` already are not made again, so that a run which broke off can go on.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from packaging.version import Version

from docs import exchange
from docs.stacks import pinned
from meshproof.comparison import Comparison, Difference, compare
from meshproof.comparison.output import cases, escape
from meshproof.environments import make_environment
from meshproof.files import replace_text
from meshproof.report.document import describe_stack, read_report
from meshproof.upgrade.progress import show_progress
from meshproof.upgrade.runs import run_suites

PAGE = Path("docs/compatibility.md")
SILENT = ("losses", "numbers", "layout", "collectives", "memory", "flops", "margin", "defaults")
"""Kinds of fact that change without a word."""

HEAD = """\
# Which versions are supported, and what did each change?

The suites run on one stack for each minor release of JAX, and on one for each release of Flax that changed a layout (`tests/regressions/` has which). A stack is a file in `constraints/`; `python -m docs.window` runs them all on 8 virtual CPU devices and writes this page. `meshproof upgrade --from … --to …` compares any two.
"""  # noqa: E501 - a paragraph of Markdown is one line


def run_stacks(folder: Path, show: Callable[[str, int], object]) -> list[dict[str, Any]]:
    """The report of each stack, from the oldest JAX, and of one JAX from the oldest Flax, on."""
    folder.mkdir(parents=True, exist_ok=True)
    reports = []
    for file in sorted(Path("constraints").glob("*.txt")):
        path = folder / f"{file.stem}.json"
        if not path.exists():
            run_suites(make_environment(pinned(file)), [], path, partial(show, file.stem))
        reports.append(read_report(path))
    return sorted(reports, key=lambda report: [Version(report["environment"][name]) for name in ("jax", "flax")])


def render(reports: Sequence[dict[str, Any]]) -> str:
    """The page: a table of stacks, what each step changes, and what every stack consists of."""
    lines = [HEAD, "| jax | flax | Python | tests proved | expected to fail | not supported | failed |"]
    lines.append("|---|---|---|---|---|---|---|")
    for report in reports:
        stack = report["environment"]
        found = Counter(test["status"] for clause in report["clauses"] for test in clause["tests"])
        counts = (found[status] for status in ("proved", "expected-failure", "not-supported", "failed"))
        words = (stack["jax"], stack["flax"], stack["python"].rpartition(".")[0], *(f"{count:,}" for count in counts))
        lines.append(f"| {' | '.join(words)} |")
    lines += ["", "What is expected to fail, and why: [expectations.md](expectations.md)."]
    for old, new in pairwise(reports):
        lines += ["", *_step(compare(old, new))]
    lines += ["", "## Whole stacks", ""]
    for report in reports:
        packages = (f"{name} {version}" for name, version in report["environment"]["packages"].items())
        lines += [f"<details><summary>{describe_stack(report['environment'])}</summary>", "", ", ".join(packages)]
        lines += ["", "</details>", ""]
    return "\n".join(lines)


def _step(comparison: Comparison) -> Iterator[str]:
    """Without compile seconds: the machine was not as busy each time."""
    told = tuple(each for each in comparison.differences if each.kind != "compile")
    comparison, old, new = replace(comparison, differences=told), comparison.old, comparison.new
    yield f"## jax {old['jax']}, flax {old['flax']} → jax {new['jax']}, flax {new['flax']}"
    yield ""
    yield escape(comparison.sentence)
    groups = comparison.groups()
    for title, silent in (("Silently", True), ("Loudly", False)):
        chosen = [group for group in groups if (group[0].kind in SILENT) == silent and group[0].change != "new"]
        if chosen:
            yield from ("", f"{title}:", "", "| what | where | was | is | cases |", "|---|---|---|---|---|")
            yield from map(_row, chosen)
    added = Counter(each.kind for each in comparison.differences if each.change == "new")
    if added:
        yield from ("", f"New: {', '.join(f'{count:,} of kind {kind}' for kind, count in added.items())}.")


def _row(group: Sequence[Difference]) -> str:
    first = group[0]
    words = (f"{first.change} {first.kind}", first.place, first.old, first.new, cases(group))
    return f"| {' | '.join(map(escape, words))} |"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m docs.window", description=__doc__)
    parser.add_argument("--reports", type=Path, default=Path("build/window"), help="where reports are kept")
    folder = parser.parse_args().reports
    with show_progress() as show:
        found = run_stacks(folder, show)
    replace_text(PAGE, f"{render(found)}\n{exchange.kept()}\n")
