"""Every device its own examples."""

import pytest

from .applicability import splits


@pytest.mark.clause("SHD-4", applies=splits("batch"))
def test_batches_are_sharded(case, observation, judge):
    """Input batches MUST be sharded as declared, each device holding its own examples and none the whole batch."""
    judge.promised(case.contract.batch, "layout of the batch")
    batch = judge.see(observation.batch)
    judge.declared(batch.fields)
    shards = sum(len(field.shards) for field in batch.fields)
    first = f"{len(batch.displaced)} of {shards} shards do not hold their declared part of the host batch, the first is"
    judge.clear(f"{first} {shard}" for shard in batch.displaced[:1])
    judge.clear(
        f"{field.path} is declared {field.declared_spec}: position {shard.position} holds all {field.shape[0]} examples"
        for field in batch.fields
        for shard in field.shards
        if shard.shape == field.shape
    )
