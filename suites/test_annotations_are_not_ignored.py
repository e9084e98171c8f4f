"""A misspelt or inert annotation raises nothing: the parameter is just everywhere."""

from math import prod

import pytest

from meshproof.observing.observation import NotSupported

from .applicability import distributed, mesh_axes, splits


def may_be_annotated(case):
    """The contract splits parameters or is open, or the framework has annotations of its own."""
    return splits("parameters")(case) or (distributed(case) and case.strategy.framework == "nnx")


@pytest.mark.clause("SHD-6", applies=may_be_annotated)
def test_annotations_are_not_ignored(case, observation, judge):
    """A parameter that the contract declares sharded, or an array that Flax NNX's own metadata does, MUST NOT be whole
    on any device: also where the contract, written down from what was seen, has it so."""
    annotated = judge.see(observation.annotated)
    parameters = judge.see(judge.see(observation.at_birth).parameters) if case.contract.parameters is not None else ()
    sharded = [
        leaf
        for leaf in (*parameters, *annotated)
        if any(leaf.declared or ()) and prod(case.mesh[axis] for axis in mesh_axes(leaf.declared)) > 1
    ]
    if not sharded:
        judge.see(NotSupported("neither the contract nor the framework's metadata declares a parameter sharded"))
    judge.clear(
        f"{leaf.path} is declared {leaf.declared_spec} and lies as {leaf.spec}: {whole} of {len(leaf.shards)} devices "
        f"hold all of its {leaf.shape}, allowed are none; the annotation was ignored"
        for leaf in sharded
        if (whole := sum(shard.shape == leaf.shape for shard in leaf.shards))
    )
