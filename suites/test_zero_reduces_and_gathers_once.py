"""ZeRO: less memory for no more traffic than data parallelism has."""

import math

import pytest

from meshproof.contract import spec_axes

from .applicability import axes_of, distributed
from .derived import lacking, lanes_of
from .raveled import moments, raveled


def updated_over(case):
    """The mesh axes that shard optimizer state but no parameter."""
    split = axes_of(case, "optimizer_state") - axes_of(case, "parameters")
    return {axis for axis in split if case.mesh[axis] > 1}


def updates_in_shards(case):
    """Each device updates its shard of a parameter that is then replicated; or optimizer state is left open."""
    open_state = case.contract.optimizer_state is None and case.contract.parameters is not None
    return distributed(case) and (open_state or bool(updated_over(case)))


@pytest.mark.clause("COM-3", applies=updates_in_shards)
def test_zero_reduces_and_gathers_once(case, observation, judge):
    """Over an axis that shards optimizer state but no parameter, every gradient byte MUST be reduced once and every
    updated parameter byte gathered once per step. (The forward pass gathers no parameter. A step of several
    `evaluations` may gather in each.)"""
    judge.promised(case.contract.optimizer_state, "layout of the optimizer state")
    over = updated_over(case)
    for what, program in (("forward", observation.programs.forward), ("step", observation.programs.step)):
        budget = judge.budget(what)
        seen = lanes_of(case, judge.see(program.collectives), budget)
        judge.traffic(what, (traffic for traffic in seen if not traffic.exact))
        gathers = [line for line in budget if line.payload == "parameters" and over.intersection(line.axes)]
        judge.clear(f"{what}: expected no gathered parameters; budget: {line}" for line in gathers if what == "forward")
    layouts = observation.start.layouts
    parameters, state = judge.see(layouts.parameters), judge.see(layouts.optimizer_state)
    vector = raveled(case, parameters, state)
    split = {"": (vector, set(spec_axes(vector.declared)))} if vector else moments(parameters, state)
    lacked = 0
    for leaf, axes in split.values():
        in_use = leaf.itemsize * math.prod(leaf.shape) // math.prod(case.mesh[axis] for axis in axes - over)
        lacked += lacking(in_use, axes & over, case.mesh)
    received = sum(lacking(line.bytes, line.axes, case.mesh) for line in gathers)
    source = "theory: the parts that it does not update itself"
    if not split:
        source += ", but no leaf of the optimizer state has a parameter's path at its end, and its shape"
    source += f"; budget: {'; '.join(map(str, gathers)) or 'no such line'}"
    times = 1 if received == lacked else case.contract.evaluations
    judge.equal("parameters that a device receives", received, times * lacked, "bytes", source)
