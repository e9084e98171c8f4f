"""Pipeline schedules are data: which stage does what in which tick, for which microbatch.

S stages, M microbatches, V chunks of layers a stage. A forward or a backward of one microbatch through one chunk takes
one tick. Every schedule here takes 2·(V·M + S − 1) ticks, of which a stage works in 2·V·M: the bubble's share is
(S − 1)/(V·M + S − 1). They differ in how soon a backward comes, and so in how many activations wait for theirs.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from meshproof.contract import Direction, Slot

Unit = tuple[int, int]
"""A microbatch, and the chunk of layers that it passes through."""

Work = tuple[Direction, int, int]
"""A direction, a microbatch, and how many chunks of layers lie before: chunk c of stage s lies at depth c·S + s."""


@dataclass(frozen=True)
class Schedule:
    """What each of ``stages`` does, tick by tick. Warns of fewer microbatches than stages, with the efficiency."""

    stages: int
    slots: tuple[Slot, ...]

    def __post_init__(self) -> None:
        if self.microbatches < self.stages:
            warnings.warn(
                f"{self.microbatches} microbatches keep {self.stages} stages busy {self.efficiency:.0%} of the time; "
                f"{9 * (self.stages - 1)} would do so for 90%",
                stacklevel=5,
            )

    @cached_property
    def microbatches(self) -> int:
        """M."""
        return 1 + max(slot.microbatch for slot in self.slots)

    @cached_property
    def chunks(self) -> int:
        """V."""
        return 1 + max(slot.chunk for slot in self.slots)

    @cached_property
    def ticks(self) -> int:
        """How many ticks it takes."""
        return 1 + max(slot.tick for slot in self.slots)

    @cached_property
    def phases(self) -> tuple[range, range, range]:
        """The ticks of warm-up (forwards only), steady state (both) and cool-down (backwards only)."""
        forwards = [slot.tick for slot in self.slots if slot.direction == "forward"]
        backwards = [slot.tick for slot in self.slots if slot.direction == "backward"]
        warm = min(backwards, default=self.ticks)
        steady = max(warm, 1 + max(forwards))
        return range(warm), range(warm, steady), range(steady, self.ticks)

    @cached_property
    def efficiency(self) -> float:
        """The share of slots in which a stage works, counted."""
        return len(self.slots) / (self.stages * self.ticks)

    @cached_property
    def bubble(self) -> float:
        """The share of slots in which a stage is idle, counted."""
        return 1 - self.efficiency

    @cached_property
    def live(self) -> tuple[int, ...]:
        """For each stage, how many activations at most have gone forward and not yet backward, counted."""
        most, now = [0] * self.stages, [0] * self.stages
        for slot in self.slots:
            now[slot.stage] += 1 if slot.direction == "forward" else -1
            most[slot.stage] = max(most[slot.stage], now[slot.stage])
        return tuple(most)

    @cached_property
    def depths(self) -> int:
        """V·S."""
        return self.chunks * self.stages

    def work(self, slot: Slot) -> Work:
        """What a slot does, by depth."""
        return slot.direction, slot.microbatch, slot.chunk * self.stages + slot.stage

    def inputs(self, slot: Slot) -> Iterator[Work]:
        """The works whose results a slot needs from another: the activation that it starts from, and its gradient."""
        direction, microbatch, depth = self.work(slot)
        if depth > 0:
            yield "forward", microbatch, depth - 1
        if direction == "backward" and depth < self.depths - 1:
            yield "backward", microbatch, depth + 1

    def receiver(self, slot: Slot) -> int | None:
        """The stage that a slot's result is handed on to, if any."""
        direction, _, depth = self.work(slot)
        following = depth + 1 if direction == "forward" else depth - 1
        return following % self.stages if 0 <= following < self.depths else None

    def drawing(self) -> str:
        """A row a stage, a column a tick: ``F0`` is microbatch 0 forward, ``B0b`` backward through the second chunk."""
        grid = [["·"] * self.ticks for _ in range(self.stages)]
        for slot in self.slots:
            chunk = chr(ord("a") + slot.chunk) if self.chunks > 1 else ""
            grid[slot.stage][slot.tick] = f"{slot.direction[0].upper()}{slot.microbatch}{chunk}"
        width = max(len(entry) for row in grid for entry in row)
        rows = (" ".join(entry.ljust(width) for entry in row).rstrip() for row in grid)
        return "\n".join(f"stage {stage}  {row}" for stage, row in enumerate(rows))


def gpipe(stages: int, microbatches: int) -> Schedule:
    """All forwards, then all backwards, last in first out (Huang et al. 2019): a stage holds M activations."""
    forwards = units(stages, microbatches, 1)
    return timetable(stages, forwards, forwards[::-1], warm_up=stages + microbatches)


def one_forward_one_backward(stages: int, microbatches: int) -> Schedule:
    """Each backward as soon as it can be (Narayanan et al. 2019): stage s holds S − s activations, whatever M is."""
    forwards = units(stages, microbatches, 1)
    holds = [stages - stage for stage in range(stages)]
    return timetable(stages, forwards, forwards, warm_up=stages, holds=holds)


def interleaved(stages: int, microbatches: int, chunks: int) -> Schedule:
    """1F1B over V chunks a stage (Narayanan et al. 2021): a bubble 1/V as long, for V times the hops.

    Microbatches pass a chunk in groups of S. Raises ``ValueError`` where they do not come in such groups.
    """
    forwards = units(stages, microbatches, chunks)
    if microbatches % stages:
        raise ValueError(f"{microbatches} microbatches are no whole number of groups of {stages}, one for each stage")
    backwards = [(microbatch, chunks - 1 - chunk) for microbatch, chunk in forwards]
    return timetable(stages, forwards, backwards, warm_up=stages * chunks)


def forward_only(stages: int, microbatches: int, chunks: int) -> Schedule:
    """The forward pass alone, in V·M + S − 1 ticks."""
    return timetable(stages, units(stages, microbatches, chunks), [], warm_up=stages + microbatches * chunks)


def units(stages: int, microbatches: int, chunks: int) -> list[Unit]:
    """Forwards in order: S microbatches through the first chunk, the same S through the next; then S others.

    Raises ``ValueError`` for less than one of anything.
    """
    if min(stages, microbatches, chunks) < 1:
        raise ValueError(f"{microbatches} microbatches on {stages} stages of {chunks} chunks: each must be at least 1")
    groups = [range(first, min(first + stages, microbatches)) for first in range(0, microbatches, stages)]
    return [(microbatch, chunk) for group in groups for chunk in range(chunks) for microbatch in group]


def timetable(
    stages: int,
    forwards: Sequence[Unit],
    backwards: Sequence[Unit],
    warm_up: int,
    holds: Sequence[int] | None = None,
) -> Schedule:
    """In each tick a stage does its next, if it has the turn, the input and, going forward, the room.

    The steady state begins at tick ``warm_up``; stage s holds at most ``holds[s]`` activations.
    """
    queues = {
        "forward": [deque(forwards) for _ in range(stages)],
        "backward": [deque(backwards) for _ in range(stages)],
    }
    rooms = list(holds or [len(forwards)] * stages)
    depths = stages * (1 + max(chunk for _, chunk in forwards))
    done: dict[Work | None, int] = {None: -1}
    slots: list[Slot] = []
    tick = 0
    while any(queues["forward"]) or any(queues["backward"]):
        is_cool_down = not any(queues["forward"])
        for stage in range(stages):
            direction = turn(tick - warm_up, stages - 1 - stage, is_cool_down)
            queue = queues[direction][stage]
            if not queue or (direction == "forward" and not rooms[stage]):
                continue
            microbatch, chunk = queue[0]
            work = (direction, microbatch, chunk * stages + stage)
            if done.get(input_of(work, depths), tick) < tick:
                queue.popleft()
                done[work] = tick
                slots.append(Slot(tick, stage, microbatch, direction, chunk))
                rooms[stage] += -1 if direction == "forward" else 1
        tick += 1
    return Schedule(stages, tuple(slots))


def turn(since_warm_up: int, stages_behind: int, is_cool_down: bool) -> Direction:
    """What a stage may do. In the steady state neighbours take opposite turns: what one hands on, the other can use."""
    if is_cool_down:
        return "backward"
    is_warm_up = since_warm_up < 0
    return "forward" if is_warm_up or (since_warm_up - stages_behind) % 2 else "backward"


def input_of(work: Work, depths: int) -> Work | None:
    """What a piece of work needs done before, where there are so many depths."""
    direction, microbatch, depth = work
    if direction == "forward":
        return ("forward", microbatch, depth - 1) if depth else None
    return ("backward", microbatch, depth + 1) if depth < depths - 1 else ("forward", microbatch, depth)
