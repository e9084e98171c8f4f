"""Every device its own examples."""

import pytest

from suites.applicability import splits


@pytest.mark.clause("SHD-4", applies=splits("batch"))
def test_batches_are_sharded(case, observation, judge):
    """Input batches MUST be sharded as declared. (Each device holds its own examples, and none holds the whole
    batch.)"""
    judge.promised(case.contract.batch, "layout of the batch")
    batch = judge.see(observation.batch)
    judge.declared(batch.fields, "after shard_batch")
    shards = sum(len(field.shards) for field in batch.fields)
    wrong = f"{len(batch.displaced)} of {shards} shards hold another part of the host batch than declared; the first is"
    judge.clear(f"{wrong} {shard}" for shard in batch.displaced[:1])
    judge.clear(
        f"{field.path}: expected a part of the examples on each device ({field.declared_spec}), "
        f"position {shard.position} holds all {field.shape[0]}"
        for field in batch.fields
        for shard in field.shards
        if shard.shape == field.shape
    )
