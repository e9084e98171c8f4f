"""Parameters where the contract puts them."""

import pytest

from .moments import moments


@pytest.mark.clause("SHD-1")
def test_parameters_are_sharded_as_declared(case, observation, judge):
    """Every parameter MUST have its declared PartitionSpec on its mesh, after init and before the first step."""
    judge.promised(case.contract.parameters, "layout of the parameters")
    for layouts, when in moments(observation):
        judge.declared(judge.see(layouts.parameters), when)
