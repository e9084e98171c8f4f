"""Two axes, two kinds of traffic; a symmetric mesh would hide a swap."""

import pytest

from .applicability import both, moves, tensor_parallel
from .derived import lanes_of


def has_two_axes(case):
    """The mesh has two axes of more than one device."""
    return sum(size > 1 for size in case.mesh.values()) > 1


@pytest.mark.clause("COM-6", applies=both(has_two_axes, moves("parameters"), tensor_parallel))
def test_each_axis_carries_its_own(case, observation, judge):
    """Parameters MUST move over the FSDP axis only, and activations over the tensor axis only."""
    budget = judge.budget("step")
    seen = lanes_of(case, judge.see(observation.programs.step.collectives), budget)
    judge.traffic("step", (traffic for traffic in seen if not traffic.exact))
    carried = {
        payload: {line.axes for line in budget if line.payload == payload} for payload in ("parameters", "activations")
    }
    judge.clear(
        f"budget: expected other axes for parameters than for activations, saw parameters over {'×'.join(one)} and "
        f"activations over {'×'.join(other)}"
        for one in carried["parameters"]
        for other in carried["activations"]
        if set(one) & set(other)
    )
