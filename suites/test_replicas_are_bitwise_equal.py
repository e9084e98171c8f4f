"""Replicas that drift apart train several models at once, and no loss curve shows it."""

import pytest

from .applicability import distributed


@pytest.mark.clause("NUM-6", applies=distributed)
def test_replicas_are_bitwise_equal(observation, judge):
    """What several devices hold of one array MUST be bitwise equal on all of them after k steps."""
    judge.see(observation.run)
    judge.numbers([judge.see(observation.replicas)])
