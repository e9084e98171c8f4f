"""The result of a test, kept for the report."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from inspect import cleandoc
from typing import Any

import pytest

from meshproof.cases import Case
from meshproof.report.document import Status

LISTED = {
    "operation": "operations",
    "transformed": "transforms",
    "program": "programs",
    "stacked": "stacked_layers",
}
"""The parameter of a test for each of what a table of operations lists."""


@dataclass
class Record:
    """The result of one test, as the report holds it.

    ``margin`` is the worst of error over bound; ``ratio`` is bytes moved over theoretical bytes. ``expectation`` holds
    the entries of expectations that cover the test, and whether it failed as they say.
    """

    id: str
    clause: str
    statement: str
    case: str | None
    status: Status = "not-exercised"
    margin: float | None = None
    ratio: float | None = None
    message: str = ""
    expectation: dict[str, Any] | None = None

    def conclude(self, report: pytest.TestReport) -> None:
        """Take over the outcome of one phase of the test."""
        if report.failed:
            self.status, self.message = "failed", report.longreprtext
        elif report.skipped and hasattr(report, "wasxfail"):
            self.status, self.message = "expected-failure", f"{report.wasxfail}\n{report.longreprtext}"
        elif report.skipped and isinstance(report.longrepr, tuple):
            self.message = self.message or report.longrepr[2]
            report.longrepr = "suites", None, report.longrepr[2]  # type: ignore[assignment] # one line for all that say so
        elif report.when == "call" and report.passed:
            self.status = "proved"


RECORD = pytest.StashKey[Record]()


def record_of(item: pytest.Item) -> Record:
    """The record of a test: the same one in setup, call and teardown."""
    if RECORD not in item.stash:
        item.stash[RECORD] = Record(item.nodeid, *clause_of(item), subject_of(item))
    return item.stash[RECORD]


def clause_of(item: pytest.Item) -> tuple[str, str]:
    """The clause that a test judges, and its statement."""
    marker = item.get_closest_marker("clause")
    assert marker is not None
    return marker.args[0], _statement(getattr(item, "function", None))


@cache
def _statement(function: Any) -> str:
    return " ".join(cleandoc(function.__doc__ or "").split("\n\n")[0].split())


def case_of(item: pytest.Item) -> Case | None:
    """The case of a test; ``None`` for one that judges the stack itself."""
    case = getattr(getattr(item, "callspec", None), "params", {}).get("case")
    return case if isinstance(case, Case) else None


def subject_of(item: pytest.Item) -> str | None:
    """The id of what a test judges: of its case, or of what a table of operations lists."""
    params = getattr(getattr(item, "callspec", None), "params", {})
    return next((params[name].id for name in ("case", *LISTED) if hasattr(params.get(name), "id")), None)
