"""What must change changes, and what must not does not: an average that nothing updates harms no loss."""

from itertools import pairwise
from math import prod
from operator import ne

import numpy as np
import pytest

from meshproof.measures.numerics import bitwise, is_integer

from .applicability import both, distributed, keeps_auxiliary


@pytest.mark.clause("AUX-1", applies=both(distributed, keeps_auxiliary))
def test_auxiliary_state_changes_as_on_one_device(case, observation, judge):
    """Every leaf of the auxiliary state MUST change in just those steps in which it changes on one device. (Random
    keys, counters and other whole numbers are bitwise equal to those of one device, before training and after each
    step.)"""
    judge.needs(case, "auxiliary")
    states = history(observation, judge)
    problems = []
    for number, (before, after) in enumerate(pairwise(states), start=1):
        for path in after[0]:
            seen, alone = ((one[path], other[path]) for one, other in zip(before, after, strict=True))
            if stays(*seen) and changes(*alone):
                problems.append(f"{path}: expected step {number} to change it, as on one device; saw no change")
            if changes(*seen) and stays(*alone):
                problems.append(f"{path}: expected step {number} to leave it, as on one device; saw it change")
    for number, (seen, alone) in enumerate(states):
        if whole(alone):
            verdict = bitwise(whole(alone), whole(seen), names=("one device", "the run"))
            problems += [f"after step {number}, {record}" for record in verdict.failures]
    judge.clear(problems)


def history(observation, judge):
    """The auxiliary leaves before training and after each step: of the run, and of one device; of both the same."""
    alone, start = judge.see(observation.auxiliary.alone), judge.see(observation.auxiliary.start)
    seen = [start, *(step.auxiliary for step in judge.see(observation.training.steps))]
    states = list(zip(seen, alone, strict=True))
    judge.clear(
        f"{path}: expected {shape(other, path)} as on one device, saw {shape(one, path)}{longer(one, other, path)}"
        for one, other in states[:1]
        for path in dict.fromkeys([*other, *one])
        if shape(one, path) != shape(other, path)
    )
    return states


def shape(leaves, path):
    """The shape of a leaf, in words."""
    return f"shape {leaves[path].shape}" if path in leaves else "none"


def longer(seen, alone, path):
    """What to do where the mesh has more of the same."""
    one, other = (leaves[path].shape if path in leaves else () for leaves in (alone, seen))
    if len(one) != len(other) or sum(map(ne, one, other)) != 1 or prod(other) < prod(one):
        return ""
    return "; what each device has of its own, such as a key, is no state of one device: leave it out of auxiliary"


def stays(before, after):
    """Whether a leaf has the same bytes."""
    return before.tobytes() == after.tobytes()


def changes(before, after):
    """Whether a leaf changes by more than the rounding of a weighted mean: two products and a sum of half an ulp each,
    and weights that need not sum to 1."""
    if before.dtype.kind != "f":
        return not stays(before, after)
    with np.errstate(invalid="ignore"):
        near = np.abs(after - before) <= 2 * np.spacing(np.abs(before))
    return not (near | (after == before) | np.isnan(before)).all()


def whole(leaves):
    """Those of whole numbers."""
    return {path: leaf for path, leaf in leaves.items() if is_integer(leaf)}
