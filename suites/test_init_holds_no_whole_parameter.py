"""A model that only fits in shards must be born in shards."""

from math import prod

import pytest

from meshproof.measures.layout import expected_shards

from .applicability import splits


@pytest.mark.clause("MEM-3", applies=splits("parameters"))
def test_init_holds_no_whole_parameter(case, observation, judge):
    """Sharded init MUST never hold a whole sharded parameter on any device: while it runs, no array on a device is
    larger than the largest shard of the state, and none has the shape of a sharded parameter, unless a shard has it."""
    judge.promised(case.contract.parameters, "layout of the parameters")
    held, born = judge.see(observation.held_at_birth), judge.see(observation.at_birth)
    parameters = judge.see(born.parameters)
    shards = {
        leaf.path: tuple(stop - start for start, stop in index)
        for leaf in (*parameters, *judge.see(born.optimizer_state))
        if leaf.declared is not None
        for _, index in expected_shards(leaf.shape, leaf.declared, case.mesh)
    }
    largest, path = max(held, key=lambda array: array.elements), max(shards, key=lambda path: prod(shards[path]))
    source = f"theory: the largest shard of the state, that of {path}"
    judge.at_most(f"init holds {spelled(largest)}", largest.elements, prod(shards[path]), "elements", source)
    judge.clear(
        f"init holds {spelled(array)}, the shape of {leaf.path} whole; allowed is {list(shards[leaf.path])} of it, "
        f"for declared is {leaf.declared_spec}"
        for leaf in parameters
        for array in held
        if array.dimensions == leaf.shape and leaf.shape not in shards.values()
    )


def spelled(array):
    """As HLO spells it."""
    return f"{array.dtype}{list(array.dimensions)}"
