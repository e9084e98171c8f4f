"""ZeRO: less memory for no more traffic than data parallelism has."""

import math

import pytest

from meshproof.traffic import compare_traffic
from suites.applicability import both, splits, splits_not


@pytest.mark.clause("COM-3", applies=both(splits("optimizer_state"), splits_not("parameters")))
def test_zero_reduces_and_gathers_once(case, observation, judge):
    """Where optimizer state is sharded and parameters are not, gradients MUST be reduced and updated parameters
    gathered, each byte exactly once, and the forward pass MUST gather nothing."""
    for what, program in (("forward", observation.forward), ("step", observation.step)):
        budget = judge.promised(getattr(case.contract, what), f"communication budget of the {what}")
        seen = compare_traffic(judge.see(judge.see(program).collectives), budget)
        judge.traffic(what, (traffic for traffic in seen if not traffic.exact))
    leaves = judge.see(judge.see(observation.before).optimizer_state)
    sharded = {leaf.path.partition("/")[2]: leaf for leaf in leaves if any(leaf.declared or ())}
    updated = sum(leaf.itemsize * math.prod(leaf.shape) for leaf in sharded.values())
    gathers = [line for line in budget if line.payload == "parameters"]
    gathered, lines = sum(line.bytes for line in gathers), "; ".join(map(str, gathers)) or "no line for parameters"
    judge.equal("parameters gathered", gathered, updated, "bytes", f"those updated in shards; budget: {lines}")
