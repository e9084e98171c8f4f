"""What a program moves for one operation is compared between versions: unknown bytes could hide a gather."""

import pytest

from meshproof.operations.observing import uncounted


@pytest.mark.clause("OPS-7")
def test_bytes_of_operations_are_recorded(seen_operation, judge):
    """The bytes that an operation moves under each of its layouts MUST be recorded. (By collective and mesh axes, for
    the program of its result and gradients; ``meshproof compare`` calls more of them *regressed*.)"""
    judge.clear(uncounted(seen_operation))
