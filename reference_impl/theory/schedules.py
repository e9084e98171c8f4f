"""Pipeline schedules are data: which stage does what in which tick, for which microbatch.

S stages, M microbatches, V chunks of layers a stage. A forward or a backward of one microbatch through one chunk takes
one tick. Such a schedule takes 2·(V·M + S − 1) ticks, of which a stage works in 2·V·M: the bubble's share is
(S − 1)/(V·M + S − 1). They differ in how soon a backward comes, and so in how many activations wait for theirs. One
that makes the gradients of its weights in ticks of their own works in 3·V·M of 3·V·M + S − 1.

A schedule is made of what each stage does in turn; each does its next as soon as it has what it needs.
"""

from __future__ import annotations

import warnings
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest

from meshproof.contract import Direction, Slot

Unit = tuple[int, int]
"""A microbatch, and the chunk of layers that it passes through."""

Work = tuple[Direction, int, int]
"""A direction, a microbatch, and how many chunks of layers come before: chunk c of stage s is at depth c·S + s."""


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
        """M, the number of microbatches."""
        return 1 + max(slot.microbatch for slot in self.slots)

    @cached_property
    def chunks(self) -> int:
        """V, the number of chunks of each stage."""
        return 1 + max(slot.chunk for slot in self.slots)

    @cached_property
    def ticks(self) -> int:
        """How many ticks it takes."""
        return 1 + max(slot.tick for slot in self.slots)

    @cached_property
    def has_weights(self) -> bool:
        """Whether the gradients of weights are made in slots of their own."""
        return any(slot.direction == "weights" for slot in self.slots)

    @cached_property
    def phases(self) -> tuple[range, range, range]:
        """The ticks of warm-up (forwards only), steady state (both) and cool-down (forwards no more)."""
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
        """For each stage, how many activations at most have gone forward and are needed still, counted."""
        last: Direction = "weights" if self.has_weights else "backward"
        most, now = [0] * self.stages, [0] * self.stages
        for slot in self.slots:
            now[slot.stage] += (slot.direction == "forward") - (slot.direction == last)
            most[slot.stage] = max(most[slot.stage], now[slot.stage])
        return tuple(most)

    @cached_property
    def hops(self) -> int:
        """How often the stages send: once a tick; twice, once in each direction, in a phase that `crosses`."""
        return sum(len(phase) * (1 + self.crosses(phase)) for phase in self.phases)

    def crosses(self, ticks: range) -> bool:
        """Whether in one of these ticks a stage is handed an activation and a gradient at once."""
        receivers = ((slot.tick, self.receiver(slot)) for slot in self.slots if slot.tick in ticks)
        return any(times > 1 for (_, stage), times in Counter(receivers).items() if stage is not None)

    @cached_property
    def depths(self) -> int:
        """V·S, the number of chunks of all stages."""
        return self.chunks * self.stages

    def work(self, slot: Slot) -> Work:
        """What a slot does, by depth."""
        return slot.direction, slot.microbatch, slot.chunk * self.stages + slot.stage

    def inputs(self, slot: Slot) -> Iterator[Work]:
        """The works whose results a slot needs from another: the activation that it starts from, and its gradient."""
        direction, microbatch, depth = self.work(slot)
        if depth > 0:
            yield "forward", microbatch, depth - 1
        if direction != "forward" and depth < self.depths - 1:
            yield "backward", microbatch, depth + 1

    def receiver(self, slot: Slot) -> int | None:
        """The stage that a slot's result is sent to, if any."""
        direction, _, depth = self.work(slot)
        following = {"forward": depth + 1, "backward": depth - 1}.get(direction, self.depths)
        return following % self.stages if 0 <= following < self.depths else None

    def drawing(self) -> str:
        """A row a stage, a column a tick: ``F0`` is microbatch 0 forward, ``B0b`` backward through chunk b."""
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
    return timetable(order(forwards, forwards[::-1], warm_up=microbatches) for _ in range(stages))


def one_forward_one_backward(stages: int, microbatches: int) -> Schedule:
    """Each backward as soon as it can be (Narayanan et al. 2019): stage s holds S − s activations, whatever M is."""
    forwards = units(stages, microbatches, 1)
    return timetable(order(forwards, forwards, warm_up=stages - stage) for stage in range(stages))


def interleaved(stages: int, microbatches: int, chunks: int) -> Schedule:
    """1F1B over V chunks a stage (Narayanan et al. 2021): a bubble 1/V as long, for V times the hops.

    Microbatches pass a chunk in groups of S. Raises ``ValueError`` where they do not come in such groups.
    """
    forwards = units(stages, microbatches, chunks)
    if microbatches % stages:
        raise ValueError(f"{microbatches} microbatches are no whole number of groups of {stages}, one for each stage")
    backwards = [(microbatch, chunks - 1 - chunk) for microbatch, chunk in forwards]
    return timetable(order(forwards, backwards, warm_up=chunks * stages - stage) for stage in range(stages))


def zero_bubble(stages: int, microbatches: int) -> Schedule:
    """1F1B whose backwards leave the gradients of weights for later (Qi et al. 2023, ZB-H1): a third of its bubble.

    Those of stage s wait for s further backwards, so that every stage holds S activations.
    """
    forwards = units(stages, microbatches, 1)
    return timetable(order(forwards, forwards, stages - stage, weights_wait=stage) for stage in range(stages))


def forward_only(stages: int, microbatches: int, chunks: int) -> Schedule:
    """The forward pass alone, in V·M + S − 1 ticks."""
    forwards = units(stages, microbatches, chunks)
    return timetable(order(forwards, [], warm_up=len(forwards)) for _ in range(stages))


def units(stages: int, microbatches: int, chunks: int) -> list[Unit]:
    """Forwards in order: S microbatches through the first chunk, the same S through the next; then S others.

    Raises ``ValueError`` for less than one of anything.
    """
    if min(stages, microbatches, chunks) < 1:
        raise ValueError(f"{microbatches} microbatches on {stages} stages of {chunks} chunks: each must be at least 1")
    groups = [range(first, min(first + stages, microbatches)) for first in range(0, microbatches, stages)]
    return [(microbatch, chunk) for group in groups for chunk in range(chunks) for microbatch in group]


def order(
    forwards: Sequence[Unit], backwards: Sequence[Unit], warm_up: int, weights_wait: int | None = None
) -> Iterator[tuple[Direction, Unit]]:
    """What a stage does in turn: ``warm_up`` forwards, a backward and a forward by turns, the backwards that are left.

    Where ``weights_wait`` is a number, weights come after so many further backwards, and after the last forward at
    once.
    """
    yield from (("forward", unit) for unit in forwards[:warm_up])
    waiting: deque[Unit] = deque()
    for backward, forward in zip_longest(backwards, forwards[warm_up:]):
        yield "backward", backward
        if weights_wait is not None:
            waiting.append(backward)
            if len(waiting) > weights_wait or forward is None:
                yield "weights", waiting.popleft()
        if forward is not None:
            yield "forward", forward
    yield from (("weights", unit) for unit in waiting)


def timetable(orders: Iterable[Iterable[tuple[Direction, Unit]]]) -> Schedule:
    """The schedule in which each stage does its next in the first tick in which it has what it needs."""
    queues = [deque(own) for own in orders]
    stages = len(queues)
    depths = stages * (1 + max(chunk for _, (_, chunk) in queues[0]))
    done: dict[Work | None, int] = {None: -1}
    slots: list[Slot] = []
    tick = 0
    while any(queues):
        for stage, queue in enumerate(queues):
            if not queue:
                continue
            direction, (microbatch, chunk) = queue[0]
            work = (direction, microbatch, chunk * stages + stage)
            if done.get(input_of(work, depths), tick) < tick:
                queue.popleft()
                done[work] = tick
                slots.append(Slot(tick, stage, microbatch, direction, chunk))
        tick += 1
    return Schedule(stages, tuple(slots))


def input_of(work: Work, depths: int) -> Work | None:
    """What a piece of work needs done before, where there are so many depths."""
    direction, microbatch, depth = work
    if direction == "weights":
        return "backward", microbatch, depth
    if direction == "forward":
        return ("forward", microbatch, depth - 1) if depth else None
    return ("backward", microbatch, depth + 1) if depth < depths - 1 else ("forward", microbatch, depth)
