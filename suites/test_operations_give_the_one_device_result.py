"""Whole strategies stay right over many releases; single operations on partly replicated or tiny shards do not."""

import pytest

from meshproof.operations.observing import wrong


@pytest.mark.clause("OPS-1")
def test_operations_give_the_one_device_result(seen_operation, judge):
    """An operation MUST give the result and the gradients of NumPy or of one device under every layout of its operands
    that it does not refuse. (On meshes of 8, 2 by 4, 4 by 2, 1 by 8 and 8 by 1 devices, on automatic and explicit axes:
    equal where it copies, counts, or adds whole numbers; else within the bound of rounding. Every copy of every shard
    is judged, and an operand that was not donated must be as before.)"""
    judge.margin(max((point.margin for point in seen_operation.points), default=0.0), 1.0)
    judge.clear(wrong(seen_operation))
