"""The optimizer on its shards: SGD with momentum in both forms, and Adam."""

import numpy as np
import pytest

from meshproof.measures.numerics import is_integer
from meshproof.measures.numerics import judge as judge_leaves
from meshproof.measures.trajectories import cancelled, changes
from meshproof.observing.seen import NotExercised, NotSupported

from .applicability import both, distributed, in_float32, keeps_auxiliary, own_judge


def judge_part(part, case, observation, truth, judge):
    """Judge one part of the state after every step."""
    judge.needs(case, part)
    steps = zip(judge.see(observation.training.steps), truth.value.steps, truth.rounding.steps, strict=True)
    what, zero = part.replace("_", " "), cancelled(truth)
    start, added = None, [None] * len(truth.value.steps)
    if part == "parameters":
        start, added = judge.see(observation.start.parameters), changes(truth.value)
    verdicts = (
        judge_leaves(
            *(getattr(of, part) for of in step),
            f"{what} after step {number}",
            cancelled=zero,
            changes=change,
            began=start if number == 1 else None,
        )
        for number, (step, change) in enumerate(zip(steps, added, strict=True), start=1)
    )
    judge.numbers(verdicts, observation.lost_examples if part == "parameters" else ())


@pytest.mark.clause("NUM-3", applies=both(distributed, in_float32))
def test_optimizer_state_equals_truth(case, observation, truth, judge):
    """The optimizer state of every distributed strategy MUST equal truth after each of k steps."""
    judge.needs(case, "optimizer_state")
    if not any(step.optimizer_state for step in (*judge.see(observation.training.steps), *truth.value.steps)):
        judge.see(NotSupported("the optimizer keeps no state, in the run or in its truth"))
    judge_part("optimizer_state", case, observation, truth, judge)


@pytest.mark.clause("NUM-3", applies=both(distributed, in_float32))
def test_parameters_equal_truth(case, observation, truth, judge):
    """The parameters of every distributed strategy MUST equal truth after each of k steps."""
    judge_part("parameters", case, observation, truth, judge)
    double = observation.single_device.in_double
    if own_judge(case) and isinstance(double, NotSupported):
        judge.note(f"its truth is its own run in float32, and twice as many roundings are allowed: {double.reason}")


@pytest.mark.clause("NUM-3", applies=both(distributed, in_float32, keeps_auxiliary))
def test_auxiliary_state_equals_truth(case, observation, truth, judge):
    """The auxiliary state of every distributed strategy MUST equal truth after each of k steps. (Whole numbers and
    random keys, which ``load`` is not handed: AUX-1. A running mean follows a bias that the norm takes out again, and
    of which rounding decides.)"""
    judge.needs(case, "auxiliary")
    cancelled_shapes = {np.shape(marked): marked for marked in cancelled(truth).values()}
    steps = zip(judge.see(observation.training.steps), truth.value.steps, truth.rounding.steps, strict=True)
    verdicts = []
    for number, (seen, value, rounding) in enumerate(steps, start=1):
        if not value.auxiliary:
            judge.see(NotSupported("the truth has no auxiliary state"))
        saw, is_, by = (
            {path: leaf for path, leaf in leaves.items() if not is_integer(value.auxiliary.get(path, leaf))}
            for leaves in (seen.auxiliary, value.auxiliary, rounding.auxiliary)
        )
        if not is_:
            judge.see(NotExercised("the auxiliary state has whole numbers alone: AUX-1 judges them"))
        follow = {
            path: cancelled_shapes[np.shape(leaf)] for path, leaf in is_.items() if np.shape(leaf) in cancelled_shapes
        }
        verdicts.append(judge_leaves(saw, is_, by, f"auxiliary state after step {number}", cancelled=follow))
    judge.numbers(verdicts)
