"""Determinism on one machine."""

import pytest


@pytest.mark.clause("NUM-5")
def test_runs_are_bitwise_equal(observation, judge):
    """Two runs from the same values MUST leave bitwise equal state."""
    judge.see(observation.training.steps)
    judge.numbers([judge.see(observation.training.rerun)])
