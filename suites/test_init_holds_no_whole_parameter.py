"""A model that only fits in shards must be born in shards."""

from math import prod

import pytest

from meshproof.layout import expected_shards
from suites.applicability import splits


@pytest.mark.clause("MEM-3", applies=splits("parameters"))
def test_init_holds_no_whole_parameter(case, observation, judge):
    """Sharded init MUST never hold a whole sharded parameter on any device: while it runs, no array on a device is
    larger than the largest shard of the state."""
    judge.promised(case.contract.parameters, "layout of the parameters")
    largest, born = judge.see(observation.largest_at_birth), judge.see(observation.at_birth)
    shards = {
        leaf.path: prod(stop - start for start, stop in index)
        for leaf in (*judge.see(born.parameters), *judge.see(born.optimizer_state))
        if leaf.declared is not None
        for _, index in expected_shards(leaf.shape, leaf.declared, case.mesh)
    }
    path = max(shards, key=shards.get)
    held = f"{largest.dtype}{list(largest.dimensions)}"
    source = f"theory: the largest shard of the state, that of {path}"
    judge.at_most(f"init holds {held}", largest.elements, shards[path], "elements", source)
