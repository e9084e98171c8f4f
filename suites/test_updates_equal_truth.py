"""The optimizer on its own shards: SGD with momentum in both its forms, and Adam."""

import pytest

from meshproof.numerics import judge as judge_leaves
from suites.applicability import in_float32


@pytest.mark.clause("NUM-3", applies=in_float32)
def test_updates_equal_truth(observation, truth, judge):
    """Optimizer state, and then parameters, MUST equal truth after each of k steps."""
    steps = zip(judge.see(observation.run).steps, truth.value.steps, truth.rounding.steps, strict=True)
    judge.numbers(
        judge_leaves(getattr(seen, part), getattr(value, part), getattr(rounding, part), f"{part} after step {number}")
        for number, (seen, value, rounding) in enumerate(steps, start=1)
        for part in ("optimizer_state", "parameters")
    )
