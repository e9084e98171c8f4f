"""A sharding's metadata is not enough: the shards on the devices are looked at."""

from math import prod

import pytest

from meshproof.measures.layout import expected_shards

from .applicability import keeps_auxiliary


@pytest.mark.clause("SHD-3")
def test_shards_are_what_the_spec_implies(case, observation, judge):
    """The shards of every parameter, optimizer-state and auxiliary leaf MUST have the positions, indices, shapes and
    bytes that its declared PartitionSpec implies."""
    for part in ("parameters", "optimizer_state", *["auxiliary"] * keeps_auxiliary(case)):
        judge.promised(getattr(case.contract, part), f"layout of the {part.replace('_', ' ')}")
        leaves = judge.see(getattr(observation.training.layouts, part))
        judge.clear(problem for leaf in leaves if leaf.declared is not None for problem in problems(leaf, case.mesh))


def problems(leaf, mesh):
    """Sentences on how the shards of a leaf differ from what its declared spec implies."""
    held = {shard.position: shard for shard in leaf.shards}
    expected = dict(expected_shards(leaf.shape, leaf.declared, mesh))
    if len(held) != len(leaf.shards) or held.keys() != expected.keys():
        saw = sorted(shard.position for shard in leaf.shards)
        yield f"{leaf.path}, after training: expected one shard on each of positions {sorted(expected)}, saw {saw}"
        return
    wrong = []
    for position, index in expected.items():
        shard, shape = held[position], tuple(stop - start for start, stop in index)
        size = leaf.itemsize * prod(shape)
        if (shard.index, shard.shape, shard.bytes) != (index, shape, size):
            wrong.append(
                f"on position {position} expected {index} of shape {shape} in {size:,} bytes, "
                f"saw {shard.index} of shape {shard.shape} in {shard.bytes:,} bytes"
            )
    if wrong:
        yield (
            f"{leaf.path} {leaf.shape}, after training: expected {leaf.declared_spec}, is {leaf.placed}; "
            f"{len(wrong)} of {len(expected)} devices hold another part: {wrong[0]}"
        )
