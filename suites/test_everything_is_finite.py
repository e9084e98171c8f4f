"""No comparison may pass because both sides are NaN, and no bound because it allows everything."""

from dataclasses import asdict

import numpy as np
import pytest

from meshproof.cases import has_member
from meshproof.contract import leaves
from meshproof.measures.numerics import VACUOUS, finite
from meshproof.measures.trajectories import cancelled, judge_trajectory

from .applicability import in_float32
from .metrics import judged


@pytest.mark.clause("NUM-10")
def test_everything_is_finite(case, observation, judge):
    """Every value of a run MUST be finite, in the state and in all that the strategy returns. (But for an infinity with
    which the state begins, as the best loss before the first, and for what is no number in a metric that is an array
    and has numbers, as the accuracy of a class that a batch lacks: it must be none on one device either.)"""
    seen = {}
    if has_member(case.strategy, "parameters"):
        seen["initial"] = judge.see(observation.start.parameters)
    if has_member(case.strategy, "gradients"):
        seen["gradients"] = judge.see(observation.gradients.values)
    steps = judge.see(observation.training.steps)
    seen |= {f"step {i}": asdict(step) | {"metrics": judged(step.metrics)} for i, step in enumerate(steps, start=1)}
    began = judge.see(observation.training.unreached)
    unreached = {f"step {i}/{path}": value for i in range(1, len(steps) + 1) for path, value in began.items()}
    arrays = {path: np.asarray(value) for path, value in leaves(seen)}
    shown = finite(arrays, "what the strategy shows", unreached)
    judge.numbers([shown, judge.see(observation.training.finite), judge.see(observation.training.later.finite)])


@pytest.mark.clause("NUM-10", applies=in_float32)
def test_bounds_are_small(truth, judge):
    """A bound MUST NOT exceed 1e-2 of the signal that it judges. (But for a parameter whose gradient is 0 up to
    rounding, as that of a bias that a softmax or a norm takes out again, or of the keys in one bias for queries, keys
    and values: that bound is held against the other gradients. And for up to 16 numbers that an optimizer keeps beside
    moments, which may be sums whose terms cancel. A parameter that a step brings back to nearly 0 is held against what
    the step adds.)"""
    records = [record for verdict in judge_trajectory(truth.value, truth) for record in verdict.records]
    zero = {path for path, marked in cancelled(truth).items() if marked.all()}
    endings = tuple(f"/{path}" for path in zero)
    for record in records:
        if not f"/{record.path}".endswith(endings):
            judge.margin(record.allowed, VACUOUS * record.signal)
    failed = [str(record) for record in records if record.failure]
    moved = sorted(zero & truth.value.steps[0].parameters.keys()) if failed else []
    judge.clear([*failed, *(noise(path) for path in moved)])


def noise(path):
    """What else may depend on a parameter that rounding moves."""
    return (
        f"the gradient of {path} is 0 but for rounding, and Adam moves it by its whole rate all the same; if it is a "
        f"bias that a norm takes out again, leave it out (use_bias=False)"
    )
