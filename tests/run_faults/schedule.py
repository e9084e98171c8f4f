"""Which fault comes where: a function of the seed and the number of the fault alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

SAVE, RESTORE = "save of two processes", "restore of two processes"

ALONE = (
    *(("kill", "step"), ("kill", "save"), ("kill", "restore"), ("kill", "launch")),
    *(("stop", "step"), ("stop", "save"), ("stop", "launch"), ("asleep", "launch"), ("missing", "launch")),
    *(("slow", "step"), ("full disk", "save"), ("torn write", "save")),
    *(("truncated file", "checkpoint"), ("removed file", "checkpoint"), ("flipped bit", "checkpoint")),
)
"""What happens, and in what, to a run of one process, or to a group that has no JAX. A torn write is a kill in a save,
after which half of a file is there."""

TOGETHER = (
    *(("kill", SAVE), ("stop", SAVE), ("asleep", SAVE), ("full disk", SAVE)),
    *(("kill", RESTORE), ("stop", RESTORE)),
)
"""The same to a run of two processes: each of these takes as long as four of the others."""

KINDS = 6 * ALONE + TOGETHER
"""How often each is drawn."""


@dataclass(frozen=True)
class Fault:
    """One fault: ``where`` and ``which`` are numbers from 0 to 1, for a place among those that there are."""

    seed: int
    number: int
    kind: str
    point: str
    where: float
    which: float

    def __str__(self) -> str:
        """Its number, and what it is."""
        return f"fault {self.number} of seed {self.seed}: {self.kind} in a {self.point}"


def draw(seed: int, number: int) -> Fault:
    """The fault of this number."""
    random = np.random.default_rng([seed, number])
    kind, point = KINDS[int(random.integers(len(KINDS)))]
    return Fault(seed, number, kind, point, float(random.random()), float(random.random()))


def place(fraction: float, count: int) -> int:
    """One of ``count`` places, from 0 on."""
    return min(int(fraction * count), count - 1)
