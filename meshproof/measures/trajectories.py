"""The judge of a whole training, and what of it rounding alone decides."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from math import sqrt

import numpy as np

from meshproof.contract import Leaves, ReferenceTrajectory, Step, Trajectory
from meshproof.measures.numerics import MULTIPLE, VACUOUS, judge, judge_loss, norm, real
from meshproof.measures.verdicts import LeafRecord, Verdict

FEW = 16
"""Numbers of a leaf that is no moment and may be nothing but rounding."""


def judge_trajectory(
    observed: Trajectory, reference: ReferenceTrajectory, vacuous: float = VACUOUS
) -> tuple[Verdict, ...]:
    """Everything that training computed, in order of computation: the first failure is the nearest to the cause.

    First the gradients of step 1, then for each step the loss, the optimizer state, if any is kept, and the parameters.
    In fewer digits than float32 the bound of a parameter may exceed ``vacuous`` where those of its moments do not.
    Raises ``ValueError`` if the numbers of steps differ.
    """
    true, rounding, zero = reference.value, reference.rounding, cancelled(reference)
    if len(observed.steps) != len(true.steps):
        raise ValueError(f"observed {len(observed.steps)} steps, truth has {len(true.steps)}")
    verdicts = [judge(observed.gradients, true.gradients, rounding.gradients, "gradients of step 1", vacuous, zero)]
    steps = zip(observed.steps, true.steps, rounding.steps, changes(true), strict=True)
    for number, (saw, is_, by, change) in enumerate(steps, 1):
        state, parameters = f"optimizer state after step {number}", f"parameters after step {number}"
        verdicts.append(judge_loss(saw.loss, is_.loss, by.loss, f"loss of step {number}", vacuous))
        known = dict[str, np.ndarray]()
        if saw.optimizer_state or is_.optimizer_state:
            moments = judge(saw.optimizer_state, is_.optimizer_state, by.optimizer_state, state, vacuous, zero)
            verdicts.append(moments)
            known = known_by_moments(is_.parameters, moments.records, vacuous) if vacuous > VACUOUS else known
        leaves = saw.parameters, is_.parameters, by.parameters
        verdicts.append(judge(*leaves, parameters, vacuous, known | zero, change))
    return tuple(verdicts)


def known_by_moments(parameters: Leaves, moments: Iterable[LeafRecord], vacuous: float) -> dict[str, np.ndarray]:
    """The parameters whose moments have all been judged, by bounds within ``vacuous``: with all elements of each.

    What Adam makes of the first gradients is little more than their signs: where 16 bits decide these, a parameter that
    began at 0 may have a bound as large as itself, though its gradient and its moments tell a sum from a mean.
    """
    proved = dict[str, bool]()
    for record in moments:
        of = owner(record.path, parameters)
        proved[of] = proved.get(of, True) and not record.failure and record.allowed <= vacuous * record.signal
    return {path: np.ones(np.shape(parameters[path]), bool) for path, known in proved.items() if path and known}


def changes(trajectory: Trajectory) -> tuple[Leaves, ...]:
    """What each step adds to the parameters; of the first, before which nothing is shown, nothing.

    An optimizer that takes only signs, as Lion, may bring back to 0 what began there: rounding is all that is left.
    """
    held = [step.parameters for step in trajectory.steps]
    later = ({path: real(new[path]) - real(old[path]) for path in new} for old, new in pairwise(held))
    return ({}, *later)


def cancelled(reference: ReferenceTrajectory) -> dict[str, np.ndarray]:
    """The parameters whose gradient is 0 but for rounding, and what an optimizer keeps in few numbers beside moments:
    of which elements that is so.

    The gradient of a bias that a softmax or a norm takes out again is, in float32, what other terms leave when they
    cancel. Its bound exceeds its value, but is no more than `VACUOUS` of what as many elements of all gradients have.
    Of one bias for queries, keys and values that is the part of the keys.
    Where no gradients are shown, the same is asked of each tree of moments and of the parameters, after the first step.
    So it is after a later one of those whose first gradients are exactly 0, as behind a layer that begins with zeros,
    or that are still 0 themselves.
    Few numbers, as the estimate of a distance by Prodigy, may be such sums, too: parameters show what is made of them.
    """
    true, rounding = reference.value, reference.rounding
    names = true.steps[0].parameters.keys()
    kept = true.steps[0].optimizer_state.items()
    beside = {path: np.ones(np.shape(value), bool) for path, value in kept if not owner(path, names)}
    found = {path: marked for path, marked in beside.items() if marked.size <= FEW}
    first, *later = (trees(*step) for step in zip(true.steps, rounding.steps, strict=True))
    first = [(true.gradients, rounding.gradients)] if true.gradients else first
    idle = set(names)
    for pairs in (first, *later):
        for tree, by in pairs:
            for path, marked in _cancelled(tree, by).items():
                if path in idle:
                    found[path] = marked | found.get(path, np.False_)
        shown, _ = pairs[0]
        idle -= {path for path, value in shown.items() if np.any(value)}
        if not idle:
            break
    return found


def trees(step: Step, by: Step) -> list[tuple[Leaves, Leaves]]:
    """The parameters first, and what an optimizer keeps for each: trees by the parameters' paths, and beside each what
    rounding is in it."""
    found = dict[str, tuple[Leaves, Leaves]]()
    for path, value in step.optimizer_state.items():
        if of := owner(path, step.parameters):
            tree, rounding = found.setdefault(path.removesuffix(of), ({}, {}))
            tree[of], rounding[of] = value, by.optimizer_state[path]
    return [(step.parameters, by.parameters), *found.values()]


def owner(path: str, names: Iterable[str]) -> str:
    """The parameter that a moment is kept for; empty if none."""
    return max((name for name in names if f"/{path}".endswith(f"/{name}")), key=len, default="")


def _cancelled(true: Leaves, rounding: Leaves) -> dict[str, np.ndarray]:
    elements = sum(np.size(value) for value in true.values())
    squares = sum(norm(real(value)) ** 2 for value in true.values())

    def is_noise(value: np.ndarray, allowed: np.ndarray) -> bool:
        return norm(value) < norm(allowed) <= VACUOUS * sqrt(squares * value.size / elements)

    found = {}
    for path, leaf in true.items():
        value, allowed = real(leaf), MULTIPLE * real(rounding[path])
        small = np.abs(value) < allowed
        if is_noise(value, allowed):
            found[path] = np.ones(value.shape, bool)
        elif small.any() and is_noise(value[small], allowed[small]):
            found[path] = small
    return found
