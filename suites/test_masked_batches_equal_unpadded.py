"""Padding is computed, and must count for nothing: wherever it lies, and however unevenly."""

import numpy as np
import pytest

from meshproof.contract import Trajectory
from meshproof.measures.numerics import VACUOUS_IN, judge_trajectory

from .applicability import both, distributed, masks, splits


@pytest.mark.clause("MSK-1", applies=masks)
def test_masked_batches_equal_unpadded(case, observation, truth_of, judge):
    """A padded, masked batch MUST give what the truth gives of its valid examples alone, at every step."""
    judge.needs(case, "optimizer_state", "parameters")
    run, gradients = judge.see(observation.run), judge.see(observation.gradients)
    unpadded = [without_padding(batch, case.contract.mask) for batch in case.strategy.batches(len(run.steps))]
    vacuous = VACUOUS_IN[case.contract.compute_dtype]
    judge.numbers(judge_trajectory(Trajectory(gradients, run.steps), truth_of(unpadded), vacuous))


@pytest.mark.clause("MSK-1", applies=both(masks, distributed, splits("batch")))
def test_masks_are_uneven(case, observation, judge):
    """Masks MUST be uneven across devices, so that a mean of means is not the mean of all."""
    valid = next(field for field in judge.see(observation.batch).fields if field.path == case.contract.mask)
    host = np.asarray(next(iter(case.strategy.batches(1)))[case.contract.mask]).reshape(valid.shape)
    counts = {int(host[tuple(slice(*part) for part in shard.index)].sum()) for shard in valid.shards}
    if len(counts) == 1:
        counted = f"{case.contract.mask}: every device has {counts.pop()} valid examples"
        judge.fail([f"{counted}, allowed are numbers that differ: give some devices more than others"])


def without_padding(batch, mask):
    """The valid examples, and no mask."""
    return {name: field[batch[mask]] for name, field in batch.items() if name != mask}
