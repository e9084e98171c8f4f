"""Which parameters a trainer does not train, as far as a few steps tell."""

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
