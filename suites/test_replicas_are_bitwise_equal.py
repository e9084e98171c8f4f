"""Replicas that drift apart train several models at once, and no loss curve shows it."""

import pytest

from meshproof.observing.probes import Probed

from .applicability import distributed


@pytest.mark.clause("NUM-6", applies=distributed)
def test_replicas_are_bitwise_equal(observation, judge):
    """Copies of the same part of an array MUST be bitwise equal on all devices that hold one, after k steps and after
    twelve. (Of a trainer that is its own judge also where NUM-13 leads it, as after two thousand steps.)"""
    judge.see(observation.training.steps)
    seen = [judge.see(observation.training.replicas), judge.see(observation.training.later.replicas)]
    if all(verdict.passed for verdict in seen) and isinstance(observation.probes, dict):
        probes = (probe for probe in observation.probes.values() if isinstance(probe, Probed))
        seen += [probe.replicas for probe in probes if probe.replicas]
    judge.numbers(seen)
