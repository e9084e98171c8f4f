"""A clause of a case has several tests: none of them is lost behind another."""

from dataclasses import replace

import pytest

from meshproof.comparison import compare
from meshproof.comparison.differences import Difference
from tests.comparing import judgement, report, told

FURTHER = "suites/test_COM-4.py::test_further[fsdp-jax-toy@data=8]"


def with_tests(first, further):
    """A report in which the first case has two tests of a clause, or one."""
    made = report()
    tests = made["clauses"][0]["tests"]
    tests[0] |= {"status": first, "message": "the first"}
    if further:
        tests.append(judgement("COM-4", tests[0]["case"], further, message="the further one") | {"id": FURTHER})
    return made


@pytest.mark.parametrize(
    ("was", "now", "change"),
    [
        (("not-supported", "proved"), ("not-supported", None), "gone"),
        (("not-supported", "proved"), ("not-supported", "not-supported"), "gone"),
        (("failed", "failed"), ("failed", None), "gone"),
        (("not-supported", "proved"), ("proved", "not-supported"), "gone"),
        (("expected-failure", "proved"), ("expected-failure", "failed"), "regressed"),
        (("expected-failure", "proved"), ("expected-failure", "expected-failure"), "regressed"),
        (("failed", "proved"), ("failed", "failed"), "regressed"),
        (("failed", "proved"), ("failed", "proved"), None),
        (("failed", "not-supported"), ("failed", None), None),
        (("proved", None), ("proved", "proved"), None),
    ],
)
def test_every_test_counts(was, now, change):
    """One that is judged no longer is gone, one that fails now is a regression, whatever the worst one says."""
    comparison = compare(with_tests(*was), with_tests(*now))
    assert [each.change for each in comparison.differences if each.kind == "clause"] == [change] * bool(change)
    if change == "regressed":
        assert comparison.differences[0].detail == "the further one"
    if change == "gone":
        assert comparison.differences[0].detail == FURTHER and comparison.exit_code() == 2


@pytest.mark.parametrize("further", [None, "not-supported"])
def test_what_improved_hides_no_test_that_is_gone(further):
    """Both are told, and the verdict is that it cannot be told."""
    comparison = compare(with_tests("failed", "proved"), with_tests("proved", further))
    assert "gone" in [each.change for each in comparison.differences] and comparison.exit_code() == 2


def test_of_two_tests_of_one_name_the_worse_counts():
    """As in a report that was put together by hand."""
    twice = with_tests("failed", None)
    twice["clauses"][0]["tests"].insert(1, twice["clauses"][0]["tests"][0] | {"status": "proved"})
    assert ("regressed", "clause", "COM-4") in told(report(), twice)


def test_a_margin_that_erodes_is_told_of_any_test():
    """Not of the one alone that came out worst, which may have none."""
    old, new = with_tests("not-supported", "proved"), with_tests("not-supported", "proved")
    for made in (old, new):
        made["clauses"][0]["tests"][0]["margin"] = None
    new["clauses"][0]["tests"][-1]["margin"] = 0.9
    assert told(old, new) == [("changed", "margin", "COM-4")]


def test_a_test_of_another_name_is_no_loss():
    """A newer Meshproof may call it otherwise."""
    renamed = with_tests("proved", "proved")
    renamed["clauses"][0]["tests"][-1]["id"] = FURTHER.replace("further", "other")
    assert told(with_tests("proved", "proved"), renamed) == []


def test_flags_are_told_where_they_differ():
    """Not in which order they were given."""
    flags = "--xla_a=1 --xla_b=2"
    assert told(report(xla_flags=flags), report(xla_flags="--xla_b=2  --xla_a=1")) == []
    assert told(report(), report(xla_flags=flags)) == [("changed", "defaults", "XLA_FLAGS")]
    [found] = compare(report(xla_flags=flags), report()).differences
    assert (found.old, found.new) == (flags, "none")


def test_checkpoints_are_grouped_by_what_is_said():
    """Two causes are two lines, each with the first of its cases; other names and numbers are no other cause."""

    def checkpoint(case, said):
        return Difference("regressed", "checkpoint", case, "CKP-4, saved by --from", "the saved state", said)

    found = (
        checkpoint("a", "the process that should restore it ended"),
        checkpoint("b", "'w' (64, 32): expected step 3, saw 4"),
        checkpoint("c", "'layers/0' (8,): expected step 5, saw 6"),
    )
    comparison = replace(compare(report(), report()), differences=found)
    assert [[each.case for each in group] for group in comparison.groups()] == [["a"], ["b", "c"]]
