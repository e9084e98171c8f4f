"""Momentum where the page says it is: the memory that ZeRO saves is mostly this."""

import pytest


@pytest.mark.clause("SHD-2")
def test_optimizer_state_lies_as_declared(case, observation, judge):
    """Every optimizer-state leaf MUST have its declared PartitionSpec, from birth."""
    judge.promised(case.contract.optimizer_state, "layout of the optimizer state")
    for layouts, when in (
        (observation.initialisation.layouts, "at birth"),
        (observation.start.layouts, "before training"),
    ):
        judge.declared(judge.see(layouts.optimizer_state), when)
