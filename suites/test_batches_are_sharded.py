"""Every device its own examples."""

import pytest

from suites.applicability import splits


@pytest.mark.clause("SHD-4", applies=splits("batch"))
def test_batches_are_sharded(case, observation, judge):
    """Input batches MUST be sharded as declared, each device holding its own examples and none the whole batch."""
    judge.promised(case.contract.batch, "layout of the batch")
    fields, displaced = judge.see(observation.start.batch.fields), judge.see(observation.start.batch.displaced)
    judge.declared(fields)
    shards = sum(len(field.shards) for field in fields)
    first = f"{len(displaced)} of {shards} shards do not hold their declared part of the host batch, the first is"
    judge.clear(f"{first} {shard}" for shard in displaced[:1])
    judge.clear(
        f"{field.path} is declared {field.declared_spec}: position {shard.position} holds all {field.shape[0]} examples"
        for field in fields
        for shard in field.shards
        if shard.shape == field.shape
    )
