"""The curve that everybody looks at, judged by a rounding bound instead of by eye."""

from math import inf

import pytest

from meshproof.measures.numerics import VACUOUS_IN, agree, judge_loss
from meshproof.measures.numerics import judge as judge_leaves

from .applicability import draws, in_float32, unless
from .metrics import comparable


@pytest.mark.clause("NUM-4", applies=in_float32)
def test_losses_equal_truth(observation, truth, judge):
    """The loss MUST equal truth at every step. (With it every other metric that the truth has, as that of one device
    does: numbers, and arrays of the shape that they have there.)"""
    steps = zip(judge.see(observation.training.steps), truth.value.steps, truth.rounding.steps, strict=True)
    verdicts = []
    for number, (seen, value, rounding) in enumerate(steps, start=1):
        verdicts.append(judge_loss(seen.loss, value.loss, rounding.loss, f"loss of step {number}"))
        if value.metrics:
            *of, unlike = comparable(seen.metrics, value.metrics, rounding.metrics)
            verdicts.append(judge_leaves(*of, f"metrics of step {number}", vacuous=inf))  # one of them may be near 0
            if unlike:
                judge.note(f"metrics that have another shape on one device are not judged: {', '.join(unlike)}")
    judge.numbers(verdicts, observation.lost_examples)


@pytest.mark.clause("NUM-4", applies=in_float32)
def test_forward_pass_equals_truth(observation, truth, judge):
    """The loss of the forward pass alone MUST equal truth's loss of the first step. (On one device, where a step draws:
    the forward pass may not.)"""
    loss, alone = judge.see(observation.start.loss), observation.single_device
    true = judge.see(alone.forward) if alone.draws is True else truth.value.steps[0].loss
    judge.numbers([judge_loss(loss, true, truth.rounding.steps[0].loss, "forward pass")])


@pytest.mark.clause("NUM-11", applies=unless(draws))
def test_steps_report_the_loss_of_their_state(case, observation, truth, judge):
    """The loss that a train step reports MUST be that of the forward pass in the state, and on the batch, that the step
    was given. (Not that of the step before it, or of stale parameters.)"""
    steps, losses = judge.see(observation.training.steps), [*map(judge.see, judge.see(observation.training.losses))]
    judge.numbers(
        (
            agree(
                {"loss": loss},
                {"loss": step.loss},
                {"loss": rounding.loss},
                f"loss of step {number}",
                ("loss(state, batch)", "train_step"),
                VACUOUS_IN[case.contract.compute_dtype],
            )
            for number, (step, loss, rounding) in enumerate(zip(steps, losses, truth.rounding.steps, strict=True), 1)
        ),
        astray({"train_step": [step.loss for step in steps], "loss(state, batch)": losses}, truth),
    )


def astray(reported, truth):
    """A sentence about the one of two members whose losses are not those of truth."""
    steps = zip(truth.value.steps, truth.rounding.steps, strict=True)
    true = [(value.loss, rounding.loss) for value, rounding in steps]
    right = {
        member: all(judge_loss(loss, *of).passed for loss, of in zip(losses, true, strict=True))
        for member, losses in reported.items()
    }
    wrong = [member for member in right if not right[member]]
    return (f"of the two only {wrong[0]} differs from truth",) if len(wrong) == 1 else ()
