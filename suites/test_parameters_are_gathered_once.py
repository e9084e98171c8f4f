"""FSDP as it is meant: parameters are gathered, gradients are scattered, activations stay."""

import pytest

from meshproof.measures.traffic import compare_traffic

from .applicability import moves
from .derived import theory


@pytest.mark.clause("COM-4", applies=moves("parameters", "all-gather"))
def test_parameters_are_gathered_once(case, observation, judge):
    """Each sharded parameter byte MUST be all-gathered once, and once more where the backward pass computes with it
    anew, and each of its gradient bytes reduce-scattered once, or all that once a microbatch, with no parameter-sized
    all-reduce beyond the target's realisation of reduce-scatter, and none at all where the collectives are written by
    hand."""
    budget = judge.promised(case.contract.step, "communication budget of the train step")
    axes = {line.axes for line in budget if line.payload == "parameters"}
    lanes = [
        t for t in compare_traffic(judge.see(judge.see(observation.step).collectives), budget) if t.lane[1] in axes
    ]
    judge.traffic("step", (traffic for traffic in lanes if not traffic.exact))
    judge.clear(
        f"{entry.operation} over {'×'.join(entry.axes)} is written by hand, the compiled step has {entry.realized_as}; "
        f"budget: {'; '.join(map(str, traffic.lines))}"
        for traffic in lanes
        for entry in traffic.entries
        if case.contract.explicit and not entry.realized_as.startswith(entry.operation)
    )
    derived = theory(case, observation, judge)
    judge.measured([*derived.gathers(), *derived.scatters()])
