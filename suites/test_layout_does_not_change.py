"""A step whose output is sharded differently from its input costs a resharding, or a compilation, every time."""

import pytest


@pytest.mark.clause("SHD-5")
def test_layout_does_not_change(case, observation, judge):
    """The sharding of every array of the state MUST be the same after N steps as before the first. (Of
    parameters, optimizer state and auxiliary state: the declared one, if the contract declares it.)"""
    judge.see(observation.training.steps)
    judge.clear(f"after training, {leaf}" for leaf in judge.see(observation.training.moved))
    for part in ("parameters", "optimizer_state", "auxiliary"):
        if getattr(case.contract, part) is not None:
            judge.declared(judge.see(getattr(observation.training.layouts, part)), "after training")
