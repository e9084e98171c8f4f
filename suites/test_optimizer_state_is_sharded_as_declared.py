"""Optimizer state where the contract puts it: most of the memory that ZeRO saves is this."""

import pytest


@pytest.mark.clause("SHD-2")
def test_optimizer_state_is_sharded_as_declared(case, observation, judge):
    """Every optimizer-state leaf MUST have its declared PartitionSpec on its mesh, after init and before the first
    step."""
    judge.promised(case.contract.optimizer_state, "layout of the optimizer state")
    for layouts, when in (
        (observation.initialisation.layouts, "after init"),
        (observation.start.layouts, "before training"),
    ):
        judge.declared(judge.see(layouts.optimizer_state), when)
