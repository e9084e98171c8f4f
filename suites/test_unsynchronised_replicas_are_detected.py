"""Replicas that are never synchronised train several models at once."""

from itertools import combinations

import numpy as np
import pytest

from meshproof.contract import leaves, spec_axes

from .applicability import both, deals, moves


@pytest.mark.clause("ERR-2", applies=both(deals, moves("gradients")))
def test_unsynchronised_replicas_are_detected(case, observation, judge):
    """Devices that train on different examples MUST hold bitwise equal copies after k steps. (Replicas that are not
    synchronised would differ. That their examples differ is checked first.)"""
    judge.promised(case.contract.batch, "layout of the batch")
    judge.clear(
        f"{shard}: expected its declared part of the host batch, holds another"
        for shard in judge.see(observation.start.batch.displaced)
    )
    [batch] = case.strategy.batches(1)
    declared = {field.path: field.declared or () for field in judge.see(observation.start.batch.fields)}
    shares = [
        np.array_split(field, case.devices, axis=split_dimension(declared.get(path, ())))
        for path, field in leaves(batch)
    ]
    judge.clear(
        f"expected different examples on every device, saw the same in shares {one} and {other}: copies that drift "
        f"apart would not show"
        for one, other in combinations(range(case.devices), 2)
        if all(np.array_equal(share[one], share[other]) for share in shares)
    )
    judge.see(observation.training.steps)
    judge.numbers([judge.see(observation.training.replicas)])


def split_dimension(spec):
    """The first that is split over a mesh axis: microbatches, or steps of one call, may stand before examples."""
    return next((at for at, _ in enumerate(spec) if spec_axes(spec[at : at + 1])), 0)
