"""The summary in the terminal: strategy × clause group, the worst margin, and the number of clauses by status."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table

from meshproof.judging.records import Record
from meshproof.report.document import SIGNS, count_statuses, describe_stack, write_report
from meshproof.run.unjudged import unjudged, unseen

RAISED = re.compile(r"^  - (?:.* raised )?([A-Z]\w*(?:Error|Exception|Interrupt): .{1,400})", re.MULTILINE)
"""An error, in the message of a failure."""

SEVERAL = 3
"""Failures that one error is told of once more: they are easier to mend than to read."""

LABELS = {"xfail": "EXPECTED", "flaky": "FLAKY"}


def write_summary(
    report: dict[str, Any], records: Iterable[Record], terminal: Any, own_judges: Collection[str] = ()
) -> None:
    """Write the stack, the matrix, the worst margin, the counts, what was not judged, and what was not exercised."""
    records = list(records)
    terminal.section("conformance")
    terminal.write_line(describe_stack(report["environment"]))
    strategies = {case["id"]: case["strategy"] for case in report["cases"]}
    targets = {case["id"]: case["target"] for case in report["cases"]}
    terminal.write_line(render(matrix(records, strategies, targets), terminal))
    worst = max((record for record in records if record.margin is not None), key=_margin, default=None)
    if worst is not None:
        terminal.write_line(f"worst margin (observed / allowed): {worst.margin:.3g} in {worst.id}")
    counts = ", ".join(f"{count} {status}" for status, count in count_statuses(report).items())
    terminal.write_line(f"clauses: {counts}")
    for line in one_cause(records):
        terminal.write_line(line, red=True)
    for line in expected(records):
        terminal.write_line(line, yellow=True)
    for line in (*unjudged(records, strategies, targets), *unseen(records, strategies, own_judges)):
        terminal.write_line(line, yellow=True)
    idle = Counter(record.message for record in records if record.status == "not-exercised" and record.case)
    for reason, count in idle.items():
        terminal.write_line(f"NOT EXERCISED: {_tests(count)}: {reason or 'no reason given'}", yellow=True, bold=True)


def keep_report(report: Mapping[str, Any], path: Path, terminal: Any) -> None:
    """Write the report and say where. A run that judged, and cannot keep what it saw, ends with exit code 3."""
    try:
        write_report(report, path)
    except OSError as error:
        pytest.exit(f"--conformance-report {path}: {error.strerror}; the report is not written", 3)
    terminal.write_line(f"report: {path}")


def never_exercised(records: Iterable[Record], required: Iterable[str]) -> list[str]:
    """A line per clause that was required by its number, and judged no case of this run: its demand was not met."""
    judged = {record.clause for record in records if record.status != "not-exercised"}
    return [
        f"REQUIRED AND NOT EXERCISED: {word}: no case of this run is one that it judges; see SPEC.md for which it does"
        for word in map(str.strip, required)
        if "-" in word and word not in judged
    ]


def nothing_exercised(records: Iterable[Record]) -> bool:
    """Whether cases were chosen, and none of them could be run: that is not a pass."""
    statuses = {record.status for record in records if record.case}
    return statuses == {"not-exercised"}


def expected(records: list[Record]) -> list[str]:
    """A line per entry of expectations that covers a test of this run, passing flaky ones included."""
    told = Counter(
        (LABELS[entry["outcome"]], "passed" if record.status == "proved" else "failed", entry["reason"], entry["url"])
        for record in records
        if record.expectation and record.expectation["status"] in ("xfailed", "flaky")
        for entry in record.expectation["entries"]
    )
    return [f"{label}: {_tests(count)} {did}: {why} ({url})" for (label, did, why, url), count in told.items()]


def one_cause(records: Iterable[Record]) -> list[str]:
    """A line per error that the trainer raised in several tests of a case: there is one thing to mend."""
    raised = Counter(
        (str(record.case), told)
        for record in records
        if record.status == "failed"
        for told in {*RAISED.findall(record.message)}
    )
    return [
        f"ONE CAUSE of {_tests(count)} that failed of {case}: {told}"
        for (case, told), count in raised.most_common()
        if count >= SEVERAL
    ]


def matrix(records: list[Record], strategies: Mapping[str, str], targets: Mapping[str, str]) -> Table:
    """Strategy × clause group, on each target if there are several: the number of tests by status."""
    groups = list(dict.fromkeys(record.clause.partition("-")[0] for record in sorted(records, key=_clause)))
    where = ["target"] if len({*targets.values()}) > 1 else []
    columns = ("strategy", *where, *groups, "bytes/theory", "worst margin")
    table = Table(*columns, box=None, pad_edge=False, header_style="bold")
    order = list(dict.fromkeys(strategies.values()))
    rows = {(strategies[case], targets[case]): None for case in strategies}
    for strategy, target in sorted(rows, key=lambda row: order.index(row[0])):
        chosen = {case for case in strategies if (strategies[case], targets[case]) == (strategy, target)}
        own = [record for record in records if record.case in chosen]
        margins = [record.margin for record in own if record.margin is not None]
        ratios = [record.ratio for record in own if record.ratio is not None]
        ratio = max(ratios, key=lambda ratio: abs(ratio - 1), default=None)
        cells = [_cell([record for record in own if record.clause.startswith(f"{group}-")]) for group in groups]
        shown = ("" if ratio is None else f"{ratio:.3f}", f"{max(margins):.3g}" if margins else "")
        table.add_row(strategy, *([target] if where else []), *cells, *shown)
    return table


def render(table: Table, terminal: Any) -> str:
    """The table as text, 200 columns wide if need be: names are not cut."""
    buffer = StringIO()
    Console(file=buffer, width=200, force_terminal=terminal.hasmarkup, color_system=None).print(table)
    return buffer.getvalue().rstrip()


def _cell(records: list[Record]) -> str:
    counts = Counter(record.status for record in records)
    return " ".join(f"{sign}{counts[status]}" for status, sign in SIGNS.items() if counts[status])  # type: ignore[index]


def _tests(count: int) -> str:
    return f"{count} test{'' if count == 1 else 's'}"


def _margin(record: Record) -> float:
    return record.margin or 0.0


def _clause(record: Record) -> str:
    return record.clause
