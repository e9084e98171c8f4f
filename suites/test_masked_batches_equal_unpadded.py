"""Padding is computed, and must count for nothing: wherever it is, and however unevenly."""

import numpy as np
import pytest

from meshproof.contract import Trajectory
from meshproof.measures.numerics import VACUOUS_IN
from meshproof.measures.trajectories import judge_trajectory
from meshproof.observing.seen import NotSupported

from .applicability import both, distributed, masks, own_judge, splits, unless


@pytest.mark.clause("MSK-1", applies=both(masks, unless(own_judge)))
def test_masked_batches_equal_unpadded(case, observation, truth_of, judge):
    """Training on padded, masked batches MUST equal truth on their valid examples alone, at every step. (Where one
    device is the truth, NUM-13 judges it with masks of its own.)"""
    judge.needs(case, "optimizer_state", "parameters")
    steps, gradients = judge.see(observation.training.steps), judge.see(observation.gradients.values)
    unpadded = [without_padding(batch, case.contract.mask) for batch in case.strategy.batches(len(steps))]
    vacuous = VACUOUS_IN[case.contract.compute_dtype]
    judge.numbers(judge_trajectory(Trajectory(gradients, steps), truth_of(unpadded), vacuous))


@pytest.mark.clause("MSK-1", applies=both(masks, unless(own_judge), distributed, splits("batch")))
def test_masks_are_uneven(case, observation, judge):
    """Masks MUST be uneven across devices. (Else a mean of means would equal the mean of all examples, and hide the
    fault.)"""
    fields = {field.path: field for field in judge.see(observation.start.batch.fields)}
    batch = next(iter(case.strategy.batches(1)))
    if case.contract.mask not in fields:
        judge.fail([f"expected the mask {case.contract.mask!r} among the fields of a batch, saw {', '.join(fields)}"])
    if case.contract.mask not in batch:
        judge.see(
            NotSupported(f"no batch that batches() returns has the mask {case.contract.mask!r}, so that all count")
        )
    valid = fields[case.contract.mask]
    host = np.asarray(batch[case.contract.mask]).reshape(valid.shape)
    counts = {int(host[tuple(slice(*part) for part in shard.index)].sum()) for shard in valid.shards}
    if len(counts) == 1:
        seen = f"saw {counts.pop()} on every device: give some devices more than others"
        judge.fail([f"{case.contract.mask}: expected numbers of valid examples that differ, {seen}"])


def without_padding(batch, mask):
    """The valid examples, and no mask: all of them where the batch has none."""
    valid = np.asarray(batch[mask]).astype(bool) if mask in batch else slice(None)
    return {name: field[valid] for name, field in batch.items() if name != mask}
