"""Parameters where the page says they are."""

import pytest


@pytest.mark.clause("SHD-1")
def test_parameters_lie_as_declared(case, observation, judge):
    """Every parameter MUST have its declared PartitionSpec on its mesh, from birth."""
    judge.promised(case.contract.parameters, "layout of the parameters")
    for layouts, when in (
        (observation.initialisation.layouts, "at birth"),
        (observation.start.layouts, "before training"),
    ):
        judge.declared(judge.see(layouts.parameters), when)
