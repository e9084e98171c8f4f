"""Two axes, two kinds of traffic; a symmetric mesh would hide a swap."""

from math import prod

import pytest

from meshproof.contract import spec_axes

from .applicability import both, moves, tensor_parallel
from .derived import lanes_of

PASSES = 2
"""How often a vector may be gathered: once more where it is used in the backward pass."""


def has_two_axes(case):
    """The mesh has two axes of more than one device."""
    return sum(size > 1 for size in case.mesh.values()) > 1


@pytest.mark.clause("COM-6", applies=both(has_two_axes, moves("parameters"), tensor_parallel))
def test_each_axis_carries_its_own(case, observation, judge):
    """Parameters MUST move over the FSDP axis only, and activations over the tensor axis only. (A vector may be
    stored over both, and gathered.)"""
    budget = judge.budget("step")
    seen = lanes_of(case, judge.see(observation.programs.step.collectives), budget)
    judge.traffic("step", (traffic for traffic in seen if not traffic.exact))
    leaves = judge.see(observation.start.layouts.parameters)
    carried = {
        payload: [line for line in budget if line.payload == payload and not moves_vectors(line, leaves)]
        for payload in ("parameters", "activations")
    }
    judge.clear(
        f"budget: expected other axes for parameters than for activations, saw {one}, and {other} (ids, labels and "
        f"masks of a batch are examples)"
        for one in carried["parameters"]
        for other in carried["activations"]
        if {*one.axes} & {*other.axes}
    )


def moves_vectors(line, leaves):
    """Whether what a line gathers may be vectors alone, in stacks of layers too, that are stored over its axes."""
    depths, over = {leaf.shape[0] for leaf in leaves if len(leaf.shape) > 2}, {*line.axes}
    vectors = 0
    for leaf in leaves:
        spec = leaf.declared or ()
        stacked = len(leaf.shape) == 2 and leaf.shape[0] in depths and not spec_axes(spec[:1])
        if (len(leaf.shape) == 1 or stacked) and over <= {*spec_axes(spec)}:
            vectors += leaf.itemsize * prod(leaf.shape)
    return line.payload == "parameters" and line.bytes <= PASSES * vectors
