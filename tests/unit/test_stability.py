"""Whoever looks for what differs between runs sees it."""

from tests.comparing import CASES, report
from tests.stability import differences


def test_equal_runs_do_not_differ():
    """The same report says the same."""
    assert list(differences(report(), report())) == []


def test_a_last_bit_is_a_difference():
    """A margin that differs in its last bit is named, and so is a test that only one run has."""
    other = report()
    other["clauses"][0]["tests"][0]["margin"] = 0.20000000000000004
    lost = other["clauses"][1]["tests"].pop()["id"]
    clause, test = "suites/test_COM-4.py::test", f"[{CASES[0]}]"
    assert list(differences(report(), other)) == [
        f"{clause}{test}: ('proved', 0.2, None), then ('proved', 0.20000000000000004, None)",
        f"{lost}: ('proved', 0.2, None), then no such test",
        "1 fact of kind clause in the old report only",
        f"gone: clause of {CASES[1]}, NUM-3: proved, then not judged",
    ]


def test_a_fact_that_no_verdict_shows_is_a_difference():
    """The bits of the final state, which no clause is about."""
    other = report()
    other["cases"][0]["digest"] = "cd" * 32
    [found] = differences(report(), other)
    assert found.startswith(f"changed: numbers of {CASES[0]}")
