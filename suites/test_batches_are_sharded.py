"""Every device its own examples."""

import pytest

from suites.applicability import splits


@pytest.mark.clause("SHD-4", applies=splits("batch"))
def test_batches_are_sharded(case, observation, judge):
    """Input batches MUST be sharded as declared, each device holding its own examples and none the whole batch."""
    judge.promised(case.contract.batch, "layout of the batch")
    batch = judge.see(observation.batch)
    judge.declared(batch.fields)
    judge.clear(f"{shard} does not hold its own part of the batch" for shard in batch.displaced)
    judge.clear(
        f"{field.path}: position {shard.position} holds all {field.shape[0]} examples"
        for field in batch.fields
        for shard in field.shards
        if shard.shape == field.shape
    )
