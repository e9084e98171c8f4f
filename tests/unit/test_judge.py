"""What a failure shows of its clause, and a summary of what was not judged."""

import re

import pytest

from meshproof.judging.judge import LONGEST, brief
from meshproof.judging.records import Record
from tests.stacks import ROOT


def test_a_failure_shows_a_clause_of_a_few_lines():
    """What MUST be, always; of its explanation the first sentences."""
    statements = re.findall(r"^.*MUST.*$", (ROOT / "SPEC.md").read_text(encoding="utf-8"), re.MULTILINE)
    shown = [brief(statement) for statement in statements]
    assert [one for one, whole in zip(shown, statements, strict=True) if one != whole]
    for one, whole in zip(shown, statements, strict=True):
        assert len(one) <= LONGEST and "MUST" in one and one.count("(") == one.count(")")
        assert one == whole or whole.startswith(one.removesuffix(" More in SPEC.md.)"))


def test_those_that_say_the_same_are_one_line():
    """Of pytest's summary, which counts what was skipped at one place: a case that died would be forty."""
    places = set()
    for file, line in (("suites/test_a.py", 8), ("suites/test_b.py", 15)):
        skipped = (file, line, "Skipped: not supported: RUN-1 fails")
        report = pytest.TestReport("a", ("a", 0, "a"), {}, "skipped", skipped, "setup")
        record = Record("a", "NUM-1", "It MUST.", None)
        record.conclude(report)
        assert record.message == skipped[2]
        places.add(report.longrepr)
    assert places == {("suites", None, skipped[2])}
