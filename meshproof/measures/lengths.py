"""How long gradients are along those of one device: where digits are few, a factor is seen before a leaf is.

Rounding moves each element by itself, and a wrong mean moves all of them by one factor. Of a tree that factor is
⟨observed, true⟩/⟨true, true⟩ over all elements, in which what rounding adds averages out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from meshproof.contract import Leaves, Trajectory
from meshproof.measures.numerics import norm, real
from meshproof.measures.trajectories import owner

MULTIPLE = 12.0
"""How many deviations are allowed: twice those of a leaf, for few draws know them, and all leaves share what they are
made of. Of 200 runs of ten healthy trainers in bfloat16 (`tests.healthy.kinds`) none used more than 0.28 of it."""

LEAST = 2.0**-11
"""The least deviation of a factor: an eighth of bfloat16's unit."""

GRADIENTS = "gradients of step 1"

ALL = ""
"""The path of a whole tree among those of its leaves."""


def trees(trajectory: Trajectory) -> dict[str, Leaves]:
    """The first gradients, and what the optimizer has made of them after the first step, by parameter."""
    step, found = trajectory.steps[0], {GRADIENTS: trajectory.gradients}
    for path, value in step.optimizer_state.items():
        if of := owner(path, step.parameters):
            found.setdefault(f"{path.removesuffix(of)}… after step 1", {})[of] = value
    return {name: tree for name, tree in found.items() if any(map(np.any, tree.values()))}


def along(tree: Leaves, true: Leaves) -> dict[str, float]:
    """By leaf how many times as long a tree is along the true one, and of all of it. What is 0 there has no length."""
    products = {path: float(np.vdot(real(tree[path]), real(true[path]))) for path in true if np.any(true[path])}
    squares = {path: norm(real(true[path])) ** 2 for path in products}
    return {path: products[path] / squares[path] for path in products} | {
        ALL: sum(products.values()) / sum(squares.values())
    }


def spread(true: Trajectory, draws: Sequence[Trajectory]) -> dict[str, dict[str, float]]:
    """By tree and leaf, the root mean square of how far the draws' lengths are from 1, or `LEAST`."""
    drawn = [trees(draw) for draw in draws]
    found = {}
    for name, tree in trees(true).items():
        if each := [along(of[name], tree) for of in drawn if name in of]:
            off = {path: np.array([of[path] - 1 for of in each]) for path in each[0]}
            found[name] = {path: max(LEAST, norm(far) / len(each) ** 0.5) for path, far in off.items()}
    return found


def agreed(seen: Mapping[str, float], deviations: Mapping[str, float]) -> float | None:
    """The factor by which all of a tree is too long or too short, if there is one.

    It is further from 1 than `MULTIPLE` deviations, and each leaf of which rounding knows as much is nearer to it than
    to 1: the sum of a table's many tokens in 16 bits, say, is off alone.
    """
    factor = seen[ALL]
    off = abs(factor - 1)
    telling = [path for path in seen if path != ALL and MULTIPLE * deviations[path] < 2 * off]
    if off <= MULTIPLE * deviations[ALL] or not telling:
        return None
    return factor if all(abs(seen[path] - factor) < abs(seen[path] - 1) for path in telling) else None
