"""A model that only fits in shards must be initialised in shards."""

from math import prod

import pytest

from meshproof.measures.layout import expected_shards

from .applicability import splits


@pytest.mark.clause("MEM-3", applies=splits("parameters"))
def test_init_holds_no_whole_parameter(case, observation, judge):
    """Sharded init MUST NOT hold a whole sharded parameter on any device at any time. (While it runs, no array on a
    device is larger than the largest shard of the state, and none has the shape of a sharded parameter unless a shard
    has as many elements, which may be drawn in another shape.)"""
    judge.promised(case.contract.parameters, "layout of the parameters")
    held, layouts = judge.see(observation.initialisation.held), observation.initialisation.layouts
    parameters = judge.see(layouts.parameters)
    shards = {
        leaf.path: tuple(stop - start for start, stop in index)
        for leaf in (*parameters, *judge.see(layouts.optimizer_state))
        if leaf.declared is not None
        for _, index in expected_shards(leaf.shape, leaf.declared, case.mesh)
    }
    largest, path = max(held, key=lambda array: array.elements), max(shards, key=lambda path: prod(shards[path]))
    source = f"theory: the largest shard of the state, that of {path}"
    what = f"largest array while init runs, {spelled(largest)}"
    judge.at_most(what, largest.elements, prod(shards[path]), "elements", source)
    judge.clear(
        f"{leaf.path}, while init runs: expected shards of shape {list(shards[leaf.path])} ({leaf.declared_spec}), "
        f"saw {spelled(array)}, all of it"
        for leaf in parameters
        for array in held
        if array.dimensions == leaf.shape and prod(leaf.shape) not in map(prod, shards.values())
    )


def spelled(array):
    """An array in HLO's notation, such as ``f32[784, 128]``."""
    return f"{array.dtype}{list(array.dimensions)}"
