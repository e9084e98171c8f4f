"""Every device its own examples."""

import pytest
from jax.sharding import PartitionSpec

from meshproof.contract import leaves, spec_axes
from meshproof.hlo.constraints import spelled_type

from .applicability import deals_inside, splits


@pytest.mark.clause("SHD-4", applies=splits("batch"))
def test_batches_are_sharded(case, observation, judge):
    """Input batches MUST be sharded as declared. (Each device holds its own examples, and none holds the whole
    batch.)"""
    judge.promised(case.contract.batch, "layout of the batch")
    fields, displaced = judge.see(observation.start.batch.fields), judge.see(observation.start.batch.displaced)
    judge.declared(fields, "after shard_batch")
    shards = sum(len(field.shards) for field in fields)
    wrong = f"{len(displaced)} of {shards} shards hold another part of the host batch than declared; the first is"
    judge.clear(f"{wrong} {shard}" for shard in displaced[:1])
    judge.clear(
        f"{field.path}: expected a part of the examples on each device ({field.declared_spec}), "
        f"position {shard.position} holds all {field.shape[0]}"
        for field in fields
        for shard in field.shards
        if shard.shape == field.shape
    )


@pytest.mark.clause("SHD-4", applies=deals_inside)
def test_batches_are_split_in_the_step(case, observation, judge):
    """A step that takes a batch whole MUST split it as declared, by a sharding constraint. (Without one every device
    may compute with all examples.)"""
    [batch] = case.strategy.batches(1)
    declared = {path: case.contract.spec("batch_in_step", path) for path, _ in leaves(batch)}
    found = judge.see(observation.programs.step.constraints)
    problems = []
    for path, field in leaves(batch):
        spec, kind = declared[path], spelled_type(field.shape, str(field.dtype))
        seen = [axes for of, axes in found if of == kind]
        if any(spec) and by_dimension(spec, field.ndim) not in seen:
            other = " and ".join(sorted({str(PartitionSpec(*axes)) for axes in seen})) or "none that splits its type"
            problems.append(f"{path} {field.shape} in the step: expected a sharding constraint {spec}, saw {other}")
    judge.clear(problems)


def by_dimension(spec, dimensions):
    """The mesh axes of each dimension, the last ones of which a spec may leave out."""
    return tuple(spec_axes(spec[at : at + 1]) for at in range(dimensions))
