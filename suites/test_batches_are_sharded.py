"""Every device its own examples."""

import pytest

from .applicability import splits


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
