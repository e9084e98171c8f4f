"""Hybrid sharding: the slow links between groups carry a shard, not a gradient."""

import pytest

from meshproof.contract import HALVES

from .applicability import replica_axes
from .derived import lanes_of
from .raveled import gradient_layout


def is_frozen(case, leaf):
    """The contract declares layouts of gradients, and none of this parameter's."""
    return case.contract.gradients is not None and gradient_layout(case, leaf) is None


@pytest.mark.clause("COM-7", applies=replica_axes)
def test_replicas_exchange_shards(case, observation, judge):
    """Between replicas, exactly one shard of each gradient MUST move per step (or per microbatch), and no parameter.
    (In each of a step's `evaluations`. Gradients are reduce-scattered within the shard group first, then reduced over
    replicas.)"""
    budget, layouts = judge.budget("step"), observation.start.layouts
    between = replica_axes(case)
    seen = lanes_of(case, judge.see(observation.programs.step.collectives), budget)
    judge.traffic("step", (lane for lane in seen if not lane.exact and between.intersection(lane.lane[1])))
    exchanged = [line for line in budget if line.payload != "metrics" and between.intersection(line.axes)]
    odd = [line for line in exchanged if line.payload != "gradients"]
    judge.clear(f"between replicas: expected gradients and metrics only; budget: {line}" for line in odd)
    trained = [leaf for leaf in judge.see(layouts.parameters) if not is_frozen(case, leaf)]
    own = [leaf.bytes_per_device * (2 if leaf.dtype in HALVES else 1) for leaf in trained]
    moved, lines = sum(line.wide_bytes for line in exchanged), "; ".join(map(str, exchanged))
    parts, shards = case.contract.microbatches, sum(own) * case.contract.evaluations
    source = "theory: a device's own shards" + (", or those per microbatch" if parts > 1 else "")
    expected = parts * shards if moved == parts * shards else shards
    if any(line.dtype in HALVES for line in exchanged):
        source += ", 16 bits counted as 32"
    judge.equal("gradients between replicas, by the budget", moved, expected, "bytes", f"{source}; budget: {lines}")
