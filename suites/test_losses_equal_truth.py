"""The curve that everybody looks at, judged by a rounding bound instead of by eye."""

import pytest

from meshproof.measures.numerics import judge_loss

from .applicability import in_float32


@pytest.mark.clause("NUM-4", applies=in_float32)
def test_losses_equal_truth(observation, truth, judge):
    """The loss MUST equal truth at every step."""
    steps = zip(judge.see(observation.training.steps), truth.value.steps, truth.rounding.steps, strict=True)
    judge.numbers(
        judge_loss(seen.loss, value.loss, rounding.loss, f"loss of step {number}")
        for number, (seen, value, rounding) in enumerate(steps, start=1)
    )


@pytest.mark.clause("NUM-4", applies=in_float32)
def test_forward_pass_equals_truth(observation, truth, judge):
    """The loss of the forward pass alone MUST equal truth's loss of the first step."""
    loss = judge.see(observation.start.loss)
    judge.numbers([judge_loss(loss, truth.value.steps[0].loss, truth.rounding.steps[0].loss, "forward pass")])
