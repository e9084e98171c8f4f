"""Hybrid sharding: the slow links between groups carry a shard, not a gradient."""

import pytest

from meshproof.measures.traffic import compare_traffic

from .applicability import replica_axes


@pytest.mark.clause("COM-7", applies=replica_axes)
def test_replicas_exchange_shards(case, observation, judge):
    """Gradients MUST be reduced over replicas after they are reduce-scattered within the shard group: between replicas
    moves one shard of each, once or once a microbatch, and no parameter."""
    budget = judge.promised(case.contract.step, "communication budget of the train step")
    between = replica_axes(case)
    seen = compare_traffic(judge.see(judge.see(observation.step).collectives), budget)
    judge.traffic("step", (lane for lane in seen if not lane.exact and between.intersection(lane.lane[1])))
    exchanged = [line for line in budget if line.payload != "metrics" and between.intersection(line.axes)]
    judge.clear(f"the budget moves {line}" for line in exchanged if line.payload != "gradients")
    shards = sum(leaf.bytes_per_device for leaf in judge.see(judge.see(observation.before).parameters))
    moved, lines = sum(line.bytes for line in exchanged), "; ".join(map(str, exchanged))
    parts = case.contract.microbatches
    source = "a device's own shards" + (f", or so in each of {parts} microbatches" if parts > 1 else "")
    expected = parts * shards if moved == parts * shards else shards
    judge.equal("the budget between replicas", moved, expected, "bytes", f"{source}; budget: {lines}")
