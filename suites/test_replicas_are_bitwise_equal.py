"""Replicas that drift apart train several models at once, and no loss curve shows it."""

import pytest

from .applicability import distributed


@pytest.mark.clause("NUM-6", applies=distributed)
def test_replicas_are_bitwise_equal(observation, judge):
    """Copies of the same part of an array MUST be bitwise equal on all devices that hold one, after k steps and after
    twelve."""
    judge.see(observation.training.steps)
    judge.numbers([judge.see(observation.training.replicas), judge.see(observation.training.later.replicas)])
