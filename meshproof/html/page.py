"""The page: the values for its templates, in the order of the page."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from meshproof.html.differences import group_differences
from meshproof.html.matrix import build_matrix, pair_clauses
from meshproof.html.stacks import compare_environments, compare_packages
from meshproof.html.strategies import build_strategies, find_failures
from meshproof.html.templating import templates
from meshproof.html.verdict import judge
from meshproof.report.document import describe_stack

Report = Mapping[str, Any]


def render_page(
    new: Report,
    old: Report | None = None,
    comparison: Mapping[str, Any] | None = None,
    pictures: Sequence[tuple[str, str | None, Sequence[str]]] = (),
) -> str:
    """Self-contained HTML for reports as `read_report` returns them.

    ``comparison`` is the JSON data of a comparison of ``old`` with ``new``. ``pictures`` are of benchmarks: a heading,
    an ``svg`` element that is inserted unescaped, and remarks on what is left out.
    """
    reports = [("new", new)] if old is None else [("old", old), ("new", new)]
    differences = comparison["differences"] if comparison else []
    return (
        templates()
        .get_template("page.html")
        .render(
            verdict=judge(new, comparison),
            implementation=new["implementation"],
            stacks=[(age, describe_stack(report["environment"])) for age, report in reports],
            both=old is not None,
            comparison=comparison,
            differences=group_differences(differences),
            matrix=build_matrix(new, old),
            clauses=pair_clauses(new, old),
            idle=_idle(new),
            unmatched=new.get("unmatched_expectations", []),
            strategies=build_strategies(new, old, differences),
            homeless=find_failures(new, old, {None}),
            environment=compare_environments(new["environment"], old and old["environment"]),
            packages=compare_packages(new["environment"], old and old["environment"]),
            pictures=pictures,
            runs=[(age, report["run"]["finished"], _command(report)) for age, report in reports],
        )
    )


def _idle(report: Report) -> list[tuple[str, int]]:
    """The reasons why tests were not exercised, and the number of tests for each."""
    reasons = Counter(
        test["message"] or "no reason given"
        for clause in report["clauses"]
        for test in clause["tests"]
        if test["status"] == "not-exercised"
    )
    return reasons.most_common()


def _command(report: Report) -> str:
    run = report["run"]
    return f"{run.get('command', 'python -m pytest')} {shlex.join(run['arguments'])}"
