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
    first, last = steps[0], steps[-1]
    still = frozenset(
        path
        for path, value in start.items()
        if path in last.parameters and np.array_equal(value, last.parameters[path])
    )
    if not still < start.keys():
        return frozenset()
    kept = first.optimizer_state
    moving = (path for path, value in last.optimizer_state.items() if not np.array_equal(value, kept.get(path)))
    return still - {owner(path, start) for path in moving}


def trained_alike(start: Leaves, steps: Sequence[Any]) -> dict[str, str]:
    """The parameters whose gradients are those of another one, with the first of these: their moments are equal, or
    what all steps add where there are none. A compiler reduces such gradients once."""
    last, first = steps[-1], dict[bytes, str]()
    kept: dict[str, list[bytes]] = {}
    for path, value in last.optimizer_state.items():
        kept.setdefault(owner(path, start), []).append(np.asarray(value).tobytes())
    alike = {}
    for path, value in start.items():
        added = [np.asarray(last.parameters[path] - value).tobytes()]
        signature = b"".join([str(np.shape(value)).encode(), *kept.get(path, added)])
        if (twin := first.setdefault(signature, path)) != path:
            alike[path] = twin
    return alike
