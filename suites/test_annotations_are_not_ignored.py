"""A misspelt or inert annotation raises no error: the parameter is silently replicated."""

from math import prod

import pytest

from meshproof.contract import spec_axes
from meshproof.observing.seen import NotSupported

from .applicability import distributed, splits


def may_be_annotated(case):
    """The contract shards parameters or leaves it open, or the framework has annotations of its own."""
    return splits("parameters")(case) or (distributed(case) and case.strategy.framework == "nnx")


@pytest.mark.clause("SHD-6", applies=may_be_annotated)
def test_annotations_are_not_ignored(case, observation, judge):
    """An array that is declared sharded, by the contract or by Flax NNX's own metadata, MUST NOT be whole on any
    device. (NNX's metadata counts even if the contract, written from what was seen, says replicated.)"""
    seen = observation.initialisation
    annotated = judge.see(seen.annotated)
    parameters = judge.see(seen.layouts.parameters) if case.contract.parameters is not None else ()
    sharded = [
        leaf
        for leaf in (*parameters, *annotated)
        if any(leaf.declared or ()) and prod(case.mesh[axis] for axis in spec_axes(leaf.declared)) > 1
    ]
    if not sharded:
        judge.see(NotSupported("neither the contract nor the framework's metadata declares a parameter sharded"))
    judge.clear(
        f"{leaf.path} {leaf.shape}, after init: expected {leaf.declared_spec}, is {leaf.placed}; "
        f"{whole} of {len(leaf.shards)} devices hold all of it: the annotation is ignored"
        for leaf in sharded
        if (whole := sum(shard.shape == leaf.shape for shard in leaf.shards))
    )
