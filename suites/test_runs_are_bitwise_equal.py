"""Determinism on one machine."""

import pytest


@pytest.mark.clause("NUM-5")
def test_runs_are_bitwise_equal(observation, judge):
    """Two runs from the same values MUST end in bitwise equal states. (Where a GPU adds in another order in each run,
    and they are not, it is not judged.)"""
    judge.see(observation.training.steps)
    rerun = judge.see(observation.training.rerun)
    if not rerun.passed and (reason := observation.programs.step.in_any_order):
        judge.see(reason)
    judge.numbers([rerun])
