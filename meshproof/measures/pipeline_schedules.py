"""A pipeline's schedule, counted from its slots."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate

from meshproof.contract import Direction, Slot


@dataclass(frozen=True)
class Counts:
    """Numbers of a schedule. ``chunks`` are the groups of layers per stage; ``idle`` counts slots, over all stages.

    ``has_weights``: some slots compute gradients of weights only. ``live``: the most microbatches that one stage has
    taken forward and not yet finished. ``drains_first``: every forward comes before every backward. ``crossed``: the
    number of ticks from the first backward to the last forward, if in one of them a stage receives an activation and a
    gradient at once, else 0. ``held``: the most activations and gradients that one stage has received and still needs,
    plus those it is receiving: one, or two if they cross.
    """

    stages: int
    microbatches: int
    chunks: int
    ticks: int
    idle: int
    has_weights: bool
    live: int
    drains_first: bool
    crossed: int
    held: int

    @property
    def bubble(self) -> Fraction:
        """The share of idle slots."""
        return Fraction(self.idle, self.stages * self.ticks)


def count(schedule: Sequence[Slot]) -> Counts:
    """Count a schedule. Raises ``ValueError`` if it is empty."""
    if not schedule:
        raise ValueError("the schedule has no slots: a pipeline that does nothing")
    stages, ticks = 1 + max(slot.stage for slot in schedule), 1 + max(slot.tick for slot in schedule)
    chunks = 1 + max(slot.chunk for slot in schedule)
    has_weights = any(slot.direction == "weights" for slot in schedule)
    last_forward = max((slot.tick for slot in schedule if slot.direction == "forward"), default=-1)
    first_backward = min((slot.tick for slot in schedule if slot.direction == "backward"), default=ticks)

    crosses = _crosses(schedule, stages, chunks * stages)
    return Counts(
        stages=stages,
        microbatches=1 + max(slot.microbatch for slot in schedule),
        chunks=chunks,
        ticks=ticks,
        idle=stages * ticks - len({(slot.tick, slot.stage) for slot in schedule}),
        has_weights=has_weights,
        live=max(_live(schedule, stage, "weights" if has_weights else "backward") for stage in range(stages)),
        drains_first=last_forward < first_backward,
        crossed=(1 + last_forward - first_backward) * crosses,
        held=_held(schedule, stages, chunks * stages) + 1 + crosses,
    )


def _live(schedule: Sequence[Slot], stage: int, last: Direction) -> int:
    own = (slot for slot in sorted(schedule, key=lambda slot: slot.tick) if slot.stage == stage)
    return max(accumulate(((slot.direction == "forward") - (slot.direction == last) for slot in own), initial=0))


def _crosses(schedule: Sequence[Slot], stages: int, depths: int) -> bool:
    """Whether a stage receives an activation and a gradient in the same tick, in some tick."""
    steps = {"forward": 1, "backward": -1}
    receivers = (
        (slot.tick, following % stages)
        for slot in schedule
        if slot.direction in steps
        if 0 <= (following := slot.chunk * stages + slot.stage + steps[slot.direction]) < depths
    )
    return max(Counter(receivers).values(), default=0) > 1


def _held(schedule: Sequence[Slot], stages: int, depths: int) -> int:
    """The most activations and gradients that one stage received in earlier ticks and still needs."""
    done: dict[tuple[Direction, int, int], int] = {}
    needed: dict[tuple[Direction, int, int], Slot] = {}
    for slot in sorted(schedule, key=lambda slot: slot.tick):
        depth = slot.chunk * stages + slot.stage
        done[slot.direction, slot.microbatch, depth] = slot.tick
        if depth > 0:
            needed["forward", slot.microbatch, depth - 1] = slot
        if slot.direction != "forward" and depth < depths - 1:
            needed["backward", slot.microbatch, depth + 1] = slot
    kept = ((last.stage, tick) for work, last in needed.items() for tick in range(done.get(work, last.tick), last.tick))
    return max(Counter(kept).values(), default=0)
