"""The yardstick itself: one device against NumPy in float64."""

import pytest

from meshproof.contract import Trajectory
from meshproof.measures.numerics import judge as judge_leaves
from meshproof.measures.trajectories import cancelled, judge_trajectory

from .applicability import both, in_float32, on_one_device


@pytest.mark.clause("NUM-1", applies=both(on_one_device, in_float32))
def test_single_device_gradients_equal_truth(observation, truth, judge):
    """The first step's gradients on a single device MUST equal truth, leaf by leaf, within the derived float32
    bound."""
    gradients = judge.see(observation.gradients.values)
    true, rounding = truth.value.gradients, truth.rounding.gradients
    judge.numbers([judge_leaves(gradients, true, rounding, "gradients of step 1", cancelled=cancelled(truth))])


@pytest.mark.clause("NUM-1", applies=both(on_one_device, in_float32))
def test_single_device_equals_truth(case, observation, truth, judge):
    """On a single device, the first step's gradients and every step's loss, optimizer state and parameters MUST equal
    truth, leaf by leaf, within the derived float32 bound."""
    judge.needs(case, "gradients", "optimizer_state", "parameters")
    steps = judge.see(observation.training.steps)
    judge.numbers(judge_trajectory(Trajectory(judge.see(observation.gradients.values), steps), truth))
