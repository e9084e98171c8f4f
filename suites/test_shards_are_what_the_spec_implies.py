"""Metadata is not enough: the shards themselves."""

from math import prod

import pytest

from meshproof.measures.layout import expected_shards


@pytest.mark.clause("SHD-3")
def test_shards_are_what_the_spec_implies(case, observation, judge):
    """The shards on the devices MUST have the place, shape, count and bytes that the declared spec implies."""
    for part in ("parameters", "optimizer_state"):
        judge.promised(getattr(case.contract, part), f"layout of the {part}")
        leaves = judge.see(getattr(observation.training.layouts, part))
        judge.clear(problem for leaf in leaves if leaf.declared is not None for problem in problems(leaf, case.mesh))


def problems(leaf, mesh):
    """Where the shards of a leaf differ from what its declared spec means."""
    held = {shard.position: shard for shard in leaf.shards}
    expected = dict(expected_shards(leaf.shape, leaf.declared, mesh))
    if len(held) != len(leaf.shards) or held.keys() != expected.keys():
        yield f"{leaf.path}: shards on positions {sorted(held)}, expected one on each of {sorted(expected)}"
        return
    wrong = []
    for position, index in expected.items():
        shard, shape = held[position], tuple(stop - start for start, stop in index)
        size = leaf.itemsize * prod(shape)
        if (shard.index, shard.shape, shard.bytes) != (index, shape, size):
            wrong.append(
                f"position {position} holds part {shard.index} of shape {shard.shape} and {shard.bytes} bytes, "
                f"declared is part {index} of shape {shape} and {size} bytes"
            )
    if wrong:
        yield (
            f"{leaf.path} {leaf.shape} lies as {leaf.spec}, declared is {leaf.declared_spec}: {len(wrong)} of "
            f"{len(expected)} devices hold another part; {wrong[0]}"
        )
