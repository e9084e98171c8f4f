"""Which parameters a trainer does not train, and which it trains alike, as far as a few steps tell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from meshproof.contract import Leaves
from meshproof.measures.trajectories import owner


def frozen_in(start: Leaves, steps: Sequence[Any]) -> frozenset[str]:
    """The parameters that all steps leave as they were, if they change others: a rate may begin at 0.

    But for those of which a moment changes from step to step: a rate that begins near 0 adds less than a last digit.
    """
    still = unchanged(start, steps[-1].parameters)
    moments = steps[-1].optimizer_state
    moving = moments.keys() - unchanged(steps[0].optimizer_state, moments)
    return still - {owner(path, start) for path in moving} if still < start.keys() else frozenset()


def unchanged(before: Leaves, after: Leaves) -> frozenset[str]:
    """The leaves that have the values that they had."""
    return frozenset(path for path, value in before.items() if path in after and np.array_equal(value, after[path]))


def trained_alike(start: Leaves, steps: Sequence[Any]) -> dict[str, str]:
    """The parameters whose gradients are those of another one, with the first of these: their moments are equal, or
    what all steps add where there are none. A compiler reduces such gradients once."""
    last, first, alike = steps[-1], dict[bytes, str](), dict[str, str]()
    kept: dict[str, list[Any]] = {}
    for path, value in last.optimizer_state.items():
        kept.setdefault(owner(path, start), []).append(np.asarray(value))
    for path, value in start.items():
        told = kept.get(path, [np.asarray(last.parameters[path] - value)])
        signature = b"".join([str(np.shape(value)).encode(), *(each.tobytes() for each in told)])
        if any(map(np.any, told)) and (twin := first.setdefault(signature, path)) != path:
            alike[path] = twin
    return alike
