"""The curve that everybody looks at, held to rounding instead of to the eye."""

import pytest

from meshproof.measures.numerics import judge_loss

from .applicability import in_float32


@pytest.mark.clause("NUM-4", applies=in_float32)
def test_losses_equal_truth(observation, truth, judge):
    """The loss MUST equal truth at every step."""
    steps = zip(judge.see(observation.run).steps, truth.value.steps, truth.rounding.steps, strict=True)
    judge.numbers(
        judge_loss(seen.loss, value.loss, rounding.loss, f"loss of step {number}")
        for number, (seen, value, rounding) in enumerate(steps, start=1)
    )


@pytest.mark.clause("NUM-4", applies=in_float32)
def test_forward_pass_equals_truth(observation, truth, judge):
    """The forward pass alone MUST give the first step's loss."""
    loss = judge.see(observation.forward_loss)
    judge.numbers([judge_loss(loss, truth.value.steps[0].loss, truth.rounding.steps[0].loss, "forward pass")])
