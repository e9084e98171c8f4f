"""A pipeline's schedule, counted from its slots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from meshproof.contract import Slot


@dataclass(frozen=True)
class Counts:
    """``stages``, ``microbatches``, ``chunks`` of layers a stage, ``ticks``, and slots in which a stage is ``idle``.

    ``live`` is the most activations that one stage has taken forward and not yet backward. ``drains_first``: every
    forward comes before every backward.
    """

    stages: int
    microbatches: int
    chunks: int
    ticks: int
    idle: int
    live: int
    drains_first: bool

    @property
    def bubble(self) -> Fraction:
        """The share of idle slots."""
        return Fraction(self.idle, self.stages * self.ticks)


def count(schedule: Sequence[Slot]) -> Counts:
    """Count a schedule. Raises ``ValueError`` where it is empty."""
    if not schedule:
        raise ValueError("the schedule has no slots: a pipeline that does nothing")
    stages, ticks = 1 + max(slot.stage for slot in schedule), 1 + max(slot.tick for slot in schedule)
    forwards = [slot.tick for slot in schedule if slot.direction == "forward"]
    backwards = [slot.tick for slot in schedule if slot.direction == "backward"]
    return Counts(
        stages=stages,
        microbatches=1 + max(slot.microbatch for slot in schedule),
        chunks=1 + max(slot.chunk for slot in schedule),
        ticks=ticks,
        idle=stages * ticks - len({(slot.tick, slot.stage) for slot in schedule}),
        live=max(_live(schedule, stage) for stage in range(stages)),
        drains_first=max(forwards, default=-1) < min(backwards, default=ticks),
    )


def _live(schedule: Sequence[Slot], stage: int) -> int:
    most = now = 0
    for slot in sorted(schedule, key=lambda slot: slot.tick):
        if slot.stage == stage:
            now += 1 if slot.direction == "forward" else -1
            most = max(most, now)
    return most
