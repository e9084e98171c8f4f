"""The curve that everybody looks at, held to rounding instead of to the eye."""

import pytest

from meshproof.numerics import judge_loss
from suites.applicability import in_float32


@pytest.mark.clause("NUM-4", applies=in_float32)
def test_losses_equal_truth(observation, truth, judge):
    """The loss MUST equal truth at every step, and the forward pass alone MUST give the first step's loss."""
    seen = [("forward pass", judge.see(observation.forward_loss), 0)]
    seen += [(f"loss of step {i + 1}", step.loss, i) for i, step in enumerate(judge.see(observation.run).steps)]
    judge.numbers(
        judge_loss(loss, truth.value.steps[i].loss, truth.rounding.steps[i].loss, part) for part, loss, i in seen
    )
