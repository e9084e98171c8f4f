"""Ten layers compile at once in any version; who has a hundred learns that a release traces by squares."""

import pytest

from meshproof.operations.growing.observing import excessive


@pytest.mark.clause("OPS-6")
def test_programs_grow_in_proportion(growths, judge):
    """What JAX makes of a program MUST grow no faster than in proportion to its depth, and not with its width. (The
    equations of its jaxpr, the operations and instructions of what is lowered and compiled, and the processor's time to
    trace and lower it, as ratios at two sizes. Layers that ``scan`` repeats are counted once.)"""
    judge.margin(max(growth.margin for growth in growths), 1.0)
    judge.clear(excessive(growths))
