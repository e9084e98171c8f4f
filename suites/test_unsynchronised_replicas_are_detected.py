"""Replicas that are never synchronised train several models at once; here they would show."""

from itertools import combinations

import numpy as np
import pytest

from .applicability import both, moves, splits


@pytest.mark.clause("ERR-2", applies=both(splits("batch"), moves("gradients")))
def test_unsynchronised_replicas_are_detected(case, observation, judge):
    """Devices that train on different examples MUST hold bitwise equal copies after k steps: replicas that are not
    synchronised are detected."""
    judge.promised(case.contract.batch, "layout of the batch")
    judge.clear(
        f"{shard} does not hold its declared part of the host batch" for shard in judge.see(observation.batch).displaced
    )
    [batch] = case.strategy.batches(1)
    shares = [np.array_split(field, case.devices) for field in batch.values()]
    judge.clear(
        f"the examples of shares {one} and {other} are equal: copies that drift apart would not show"
        for one, other in combinations(range(case.devices), 2)
        if all(np.array_equal(share[one], share[other]) for share in shares)
    )
    judge.see(observation.run)
    judge.numbers([judge.see(observation.replicas)])
