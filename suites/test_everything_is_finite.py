"""No comparison may pass because both sides are NaN, and no bound because it allows everything."""

from dataclasses import asdict

import numpy as np
import pytest

from meshproof.contract import leaves
from meshproof.numerics import VACUOUS, ratio


@pytest.mark.clause("NUM-10")
def test_everything_is_finite(observation, judge):
    """Every value of a run MUST be finite."""
    steps = {f"step {i + 1}": asdict(step) for i, step in enumerate(judge.see(observation.run).steps)}
    seen = steps | {"gradients": judge.see(observation.gradients), "initial": judge.see(observation.initial)}
    judge.clear(
        f"{path}: {int((~np.isfinite(value)).sum())} of {np.size(value)} values are not finite"
        for path, value in leaves(seen)
        if not np.isfinite(value).all()
    )


@pytest.mark.clause("NUM-10")
def test_bounds_are_small(observation, truth, judge):
    """A bound MUST NOT exceed 1e-2 of the signal that it judges."""
    values, bounds = dict(leaves(asdict_steps(truth.value))), dict(leaves(asdict_steps(truth.rounding)))
    shares = {path: ratio(float(np.linalg.norm(bounds[path])), float(np.linalg.norm(values[path]))) for path in values}
    for share in shares.values():
        judge.margin(share, VACUOUS)
    judge.clear(
        f"{path}: the bound is {share:.2g} of the signal, at most {VACUOUS} judges anything"
        for path, share in shares.items()
        if share > VACUOUS
    )


def asdict_steps(trajectory):
    """A trajectory as one canonical tree."""
    steps = {f"step {i + 1}": asdict(step) for i, step in enumerate(trajectory.steps)}
    return steps | {"gradients": trajectory.gradients}
