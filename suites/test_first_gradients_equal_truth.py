"""The oracle that scale faults cannot hide from: gradients before any optimizer."""

import pytest

from meshproof.measures.numerics import judge as judge_leaves
from meshproof.measures.trajectories import cancelled

from .applicability import both, distributed, in_float32


@pytest.mark.clause("NUM-2", applies=both(distributed, in_float32))
def test_first_gradients_equal_truth(observation, truth, judge):
    """The first step's gradients of every distributed strategy MUST equal truth, leaf by leaf, within the derived
    float32 bound. (Before the optimizer, which can hide a wrong scale.)"""
    gradients = judge.see(observation.gradients.values)
    true, rounding = truth.value.gradients, truth.rounding.gradients
    verdict = judge_leaves(gradients, true, rounding, "gradients of step 1", cancelled=cancelled(truth))
    judge.numbers([verdict], observation.lost_examples)
