"""What a failure shows of its clause."""

import re

from meshproof.judging.judge import LONGEST, brief
from tests.stacks import ROOT


def test_a_failure_shows_a_clause_of_a_few_lines():
    """What MUST be, always; of its explanation the first sentences."""
    statements = re.findall(r"^.*MUST.*$", (ROOT / "SPEC.md").read_text(encoding="utf-8"), re.MULTILINE)
    shown = [brief(statement) for statement in statements]
    assert [one for one, whole in zip(shown, statements, strict=True) if one != whole]
    for one, whole in zip(shown, statements, strict=True):
        assert len(one) <= LONGEST and "MUST" in one and one.count("(") == one.count(")")
        assert one == whole or whole.startswith(one.removesuffix(" More in SPEC.md.)"))
