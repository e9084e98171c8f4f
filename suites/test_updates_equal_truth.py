"""The optimizer on its shards: SGD with momentum in both forms, and Adam."""

import pytest

from meshproof.measures.numerics import cancelled
from meshproof.measures.numerics import judge as judge_leaves

from .applicability import both, distributed, in_float32


def judge_part(part, case, observation, truth, judge):
    """Judge one part of the state after every step."""
    judge.needs(case, part)
    steps = zip(judge.see(observation.training.steps), truth.value.steps, truth.rounding.steps, strict=True)
    what, zero = part.replace("_", " "), cancelled(truth)
    judge.numbers(
        judge_leaves(*(getattr(of, part) for of in step), f"{what} after step {number}", cancelled=zero)
        for number, step in enumerate(steps, start=1)
    )


@pytest.mark.clause("NUM-3", applies=both(distributed, in_float32))
def test_optimizer_state_equals_truth(case, observation, truth, judge):
    """The optimizer state of every distributed strategy MUST equal truth after each of k steps."""
    judge_part("optimizer_state", case, observation, truth, judge)


@pytest.mark.clause("NUM-3", applies=both(distributed, in_float32))
def test_parameters_equal_truth(case, observation, truth, judge):
    """The parameters of every distributed strategy MUST equal truth after each of k steps."""
    judge_part("parameters", case, observation, truth, judge)
