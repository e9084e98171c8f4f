"""FSDP as it is meant: parameters are gathered, gradients are scattered, activations do not move."""

import pytest

from .advice import advised
from .applicability import moves
from .derived import lanes_of, theory


@pytest.mark.clause("COM-4", applies=moves("parameters", "all-gather"))
def test_parameters_are_gathered_once(case, observation, judge):
    """Every byte of a sharded parameter MUST be all-gathered once, and every byte of its gradient reduce-scattered
    once, per step (or per microbatch). (In each of a step's `evaluations`. With recomputation, a parameter may be
    gathered twice. A parameter-sized all-reduce is only admitted as the target's realisation of reduce-scatter, and not
    at all where collectives are written by hand; of a target that only compiles COM-13 judges what that costs.)"""
    budget = judge.budget("step")
    axes = {line.axes for line in budget if line.payload == "parameters"}
    lanes = [t for t in lanes_of(case, judge.see(observation.programs.step.collectives), budget) if t.lane[1] in axes]
    judge.clear(advised("step", (traffic for traffic in lanes if not traffic.exact), observation))
    judge.clear(
        f"step: expected {entry.operation} over {'×'.join(entry.axes)}, as it is written by hand, saw it compiled to "
        f"{entry.realized_as}; budget: {'; '.join(map(str, traffic.lines))}"
        for traffic in lanes
        for entry in traffic.entries
        if case.contract.explicit and not case.compiles_only
        if not entry.realized_as.removeprefix("fusion ").startswith(entry.operation)
    )
    derived = theory(case, observation, judge)
    judge.clear([*derived.gathers(), *derived.scatters()])
