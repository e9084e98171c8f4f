"""A misspelt or inert annotation raises nothing: the parameter is just everywhere."""

from math import prod

import pytest

from suites.applicability import mesh_axes, splits


@pytest.mark.clause("SHD-6", applies=splits("parameters"))
def test_annotations_are_not_ignored(case, observation, judge):
    """A parameter that is declared sharded MUST NOT be whole on any device."""
    judge.promised(case.contract.parameters, "layout of the parameters")
    judge.clear(
        f"{leaf.path} is declared {leaf.declared_spec} and lies as {leaf.spec}: {whole} of {len(leaf.shards)} devices "
        f"hold all of its {leaf.shape}, allowed are none; the annotation was ignored"
        for leaf in judge.see(judge.see(observation.at_birth).parameters)
        if any(leaf.declared or ()) and prod(case.mesh[axis] for axis in mesh_axes(leaf.declared)) > 1
        if (whole := sum(shard.shape == leaf.shape for shard in leaf.shards))
    )
