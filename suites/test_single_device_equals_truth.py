"""The yardstick itself: one device against NumPy in float64."""

import pytest

from meshproof.contract import Trajectory
from meshproof.measures.numerics import judge as judge_leaves
from meshproof.measures.numerics import judge_trajectory

from .applicability import both, in_float32, on_one_device


@pytest.mark.clause("NUM-1", applies=both(on_one_device, in_float32))
def test_single_device_gradients_equal_truth(observation, truth, judge):
    """Single-device gradients of the first step MUST equal truth, leaf by leaf, within the derived float32 bound."""
    gradients = judge.see(observation.gradients)
    judge.numbers([judge_leaves(gradients, truth.value.gradients, truth.rounding.gradients, "gradients of step 1")])


@pytest.mark.clause("NUM-1", applies=both(on_one_device, in_float32))
def test_single_device_equals_truth(case, observation, truth, judge):
    """Single-device loss, per-leaf gradients, optimizer state and parameters MUST equal truth within the derived
    float32 bound."""
    judge.needs(case, "gradients", "optimizer_state", "parameters")
    run = judge.see(observation.run)
    judge.numbers(judge_trajectory(Trajectory(judge.see(observation.gradients), run.steps), truth))
