"""A census against a communication budget: bytes by logical operation and mesh axes.

A compiler may merge the all-reduces of a tensor over one axis and over another into one over both: XLA:GPU and XLA:TPU
do. It is taken apart into those that the budget lists, each with all its bytes, if then every lane that it is taken
apart into moves exactly what is budgeted there, and if as many bytes of the same payloads are budgeted in all of them:
a gradient over data and an activation over model are no one tensor, so an all-reduce over both is neither. A merged one
that does not pass stays in a lane of its own, which no line lists.

What moves though every device could compute it, of positions and constants alone, is no data, and in no lane: it costs
bytes on the wire, and those are judged as such.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Any

from meshproof.contract import ELEMENT_TYPES, Communication, spec_axes
from meshproof.hlo import Collective
from meshproof.measures.verdicts import unequal

HALVES = ("bf16", "f16")
"""Half as wide as float32, in a compiled program's words."""

NAMES = {element: name for name, element in ELEMENT_TYPES.items()}
"""JAX's name of a dtype by that in a compiled program."""

WIDENED = ", counted as f32"
"""How an entry ends that counts as many float32, for no line of its lane says its dtype."""

SCALARS = 64
"""Bytes of a step's or a microbatch's metrics that may be reduced beside gradients: sixteen float32 numbers."""

NORMS = 20
"""Bytes of norms for each parameter: one number to clip by the global norm, and four for optax's trust ratio (LAMB),
which takes two norms, each of them twice."""

SLICED = ("all-reduce + dynamic-slice", "all-reduce-start + dynamic-slice", "fusion all-reduce-scatter")
"""How a reduce-scatter ends that a compiler writes as an all-reduce, of which each device then takes its slice."""

PADDED = "dynamic-update-slice + "
"""How an all-gather begins that is a sum: of the shards of devices, each in zeros where the others have theirs."""

Lane = tuple[str, tuple[str, ...]]
"""A logical operation and the mesh axes that it runs over."""


UNIT_NORMS = 8
"""Bytes of norms for each unit of a parameter whose other dimensions are split: of its weights and of their gradient,
as adaptive gradient clipping compares the two (optax.adaptive_grad_clip)."""


def norms_allowed(parameters: Iterable[tuple[tuple[int, ...], Iterable[Any]]], axes: Iterable[str]) -> int:
    """Bytes of norms that a step may reduce over axes, of parameters by their shapes and layouts."""
    total, over = 0, {*axes}
    for shape, spec in parameters:
        split = [size for size, entry in zip(shape, spec, strict=False) if over.intersection(spec_axes([entry]))]
        total += NORMS + (UNIT_NORMS * prod(shape) // prod(split) if split else 0)
    return total


def metrics_allowed(forward: int, passes: int, microbatches: int, norms: int) -> int:
    """Bytes of metrics that a step may reduce over an axis: what the forward pass reduces there, in each pass, for what
    is taken of the whole batch has a gradient, and of each microbatch, or scalars where those are more; and norms.

    No gradient is in a forward pass: what that reduces over an axis of the batch is taken of the whole batch, as each
    expert's share of it for a balancing loss.
    """
    return max(SCALARS, passes * forward) * microbatches + norms


def between_examples(
    forward: Iterable[Communication], step: Iterable[Communication]
) -> set[tuple[str, tuple[str, ...], str]]:
    """What moves because a loss takes examples of several devices together: operations, axes and payloads.

    A contrastive loss compares them: their activations are gathered in the forward pass, and in the step as many bytes
    of gradients are reduce-scattered back to whose they are. Mixup mixes them: examples move, as many bytes in a step
    as in a forward pass, for they have no gradient; or activations are permuted, and their gradients as well.
    """
    first, whole = (Counter[tuple[str, tuple[str, ...], str]]() for _ in range(2))
    for budget, found in ((forward, first), (step, whole)):
        for line in budget:
            found[line.operation, line.axes, line.payload] += line.bytes
    may_move = set()
    for (operation, axes, payload), size in first.items():
        back = ("reduce-scatter", axes, payload)
        if (operation, payload) == ("all-gather", "activations") and size == whole[back]:
            may_move |= {(operation, axes, payload), back}
        times = {"examples": 1, "activations": 2 * (operation == "collective-permute")}.get(payload)
        if times and whole[operation, axes, payload] == times * size:
            may_move.add((operation, axes, payload))
    return may_move


@dataclass(frozen=True)
class Traffic:
    """One lane: bytes seen per device and step (``None``: unknown), bytes budgeted, and where both come from.

    Where a line says that a half-wide float moves, bytes that were one just before count as such: XLA:CPU widens them.
    """

    lane: Lane
    seen: int | None
    budgeted: int
    entries: tuple[Collective, ...]
    lines: tuple[Communication, ...]

    @property
    def exact(self) -> bool:
        """Whether exactly the budgeted bytes move."""
        return self.seen == self.budgeted

    @property
    def ratio(self) -> float:
        """Bytes seen over bytes budgeted: infinite if none are budgeted or the amount is unknown, 1 if both are 0."""
        if self.seen is None or (self.seen and not self.budgeted):
            return float("inf")
        return self.seen / self.budgeted if self.budgeted else 1.0

    @property
    def mistyped(self) -> str:
        """What does not move in the dtype that the budget says, in words; empty if all does, or none is said."""
        open_bytes = sum(line.bytes for line in self.lines if line.dtype is None)
        for dtype in dict.fromkeys(line.dtype for line in self.lines if line.dtype):
            expected = sum(line.bytes for line in self.lines if line.dtype == dtype)
            own = [_in_dtype(entry, ELEMENT_TYPES[dtype]) for entry in self.entries]
            seen = sum(size for size in own if size is not None)
            if None in own or not expected <= seen <= expected + open_bytes:
                saw = None if None in own else seen
                lane = f"{self.lane[0]} over {'×'.join(self.lane[1])} in {dtype}"
                return f"{lane}: {unequal(saw, expected, 'bytes')}{self._typed}"
        return ""

    @property
    def types(self) -> dict[str, int]:
        """Of a lane in which a line says a dtype: how many bytes move in which."""
        said = [line.dtype for line in self.lines if line.dtype]
        half = next((dtype for dtype in said if ELEMENT_TYPES[dtype] in HALVES), "")
        found = Counter[str]()
        for entry in self.entries if said and self.seen else ():
            widened = entry.widened if half else 0
            found[half] += widened // 2
            found[NAMES.get(entry.dtype, entry.dtype)] += (entry.bytes or 0) - widened
        return {dtype: size for dtype, size in sorted(found.items()) if size}

    @property
    def _typed(self) -> str:
        """The same in words."""
        moved = self.types
        if len(moved) == 1:
            return f", all of them in {next(iter(moved))}"
        return "".join(f", {size:,} of them in {dtype}" for dtype, size in moved.items())

    def __str__(self) -> str:
        lane = f"{self.lane[0]} over {'×'.join(self.lane[1])}"
        written = ", ".join(sorted({entry.realized_as for entry in self.entries}))
        phases = ", ".join(sorted({entry.phase for entry in self.entries}))
        found = f" (written as {written}; phase {phases})" if self.entries else ""
        budget = "; ".join(map(str, self.lines)) or f"no line for {lane}"
        return f"{lane}: {unequal(self.seen, self.budgeted, 'bytes')}{self._typed}{found}; budget: {budget}"


def compare_traffic(
    collectives: Iterable[Collective], budget: Iterable[Communication], open_dtypes: Collection[str] = ()
) -> tuple[Traffic, ...]:
    """Every lane that is seen or budgeted, sorted.

    ``open_dtypes`` are half-wide element types that a contract computes in: in a lane whose lines name no dtype they
    count as float32, for it is open on which side of a collective a cast stands, but not how many elements move.
    """
    lines = list(budget)
    moved = [_as_budgeted(entry, lines) for entry in collectives if not entry.constant]
    moved = [_as_float32(entry, lines) if entry.dtype in open_dtypes else entry for entry in moved]
    entries = _taken_apart(moved, lines)
    return tuple(_lane(lane, entries, lines) for lane in sorted(set(_lanes(entries, lines))))


def _in_dtype(entry: Collective, dtype: str) -> int | None:
    """The bytes of an entry that move in a dtype; what was widened from a half-wide float counts as that."""
    if entry.bytes is None:
        return None
    if dtype in HALVES and entry.dtype == "f32":
        return entry.widened // 2
    return entry.bytes if entry.dtype == dtype else 0


def _as_budgeted(entry: Collective, lines: list[Communication]) -> Collective:
    """An all-reduce followed by a slice: a reduce-scatter, unless the budget lists only an all-reduce on these axes.

    So is the reduce-scatter that XLA made of such an all-reduce, which moves less; one written by hand is what it is.
    ZeRO-1 all-reduces a gradient and then updates a slice of it. A compiler without a reduce-scatter of its own writes
    the reduce-scatter of ZeRO-2 in the same way. And a sum of shards in zeros, an all-gather to compilers, is the
    all-reduce of a gradient to who reads a part of a table on each device and lists that alone, or as many bytes of it.
    """
    budgeted = {line.operation for line in lines if line.axes == entry.axes}
    sliced = entry.derived or entry.realized_as.endswith(SLICED)
    if entry.operation == "reduce-scatter" and sliced and "reduce-scatter" not in budgeted and "all-reduce" in budgeted:
        return replace(entry, operation="all-reduce")
    if is_sum_of_shards(entry) and is_listed_as_sum(entry, lines):
        return replace(entry, operation="all-reduce")
    return entry


def is_sum_of_shards(entry: Collective) -> bool:
    """Whether an all-gather is written as a sum in which each device has its shard, and zeros elsewhere."""
    return entry.operation == "all-gather" and entry.realized_as.startswith(PADDED)


def is_listed_as_sum(entry: Collective, lines: Iterable[Communication]) -> bool:
    """Whether a budget lists, of a sum of shards, an all-reduce of gradients over its axes: alone, or of its bytes."""
    own = [line for line in lines if line.axes == entry.axes]
    sums = [line for line in own if (line.operation, line.payload) == ("all-reduce", "gradients")]
    alone = {line.operation for line in own} == {"all-reduce"}
    return any(alone or line.bytes == entry.bytes for line in sums)


def _as_float32(entry: Collective, lines: list[Communication]) -> Collective:
    """A half-wide entry with the bytes of as many float32, unless a line of its lane says in which dtype it moves.

    One over several axes that a compiler has merged may be those of lines over some of them, if these name its dtype.
    """
    own = [line for line in lines if line.operation == entry.operation]
    said = any(line.dtype for line in own if line.axes == entry.axes) or any(
        ELEMENT_TYPES.get(line.dtype or "") == entry.dtype for line in own if {*line.axes} < {*entry.axes}
    )
    if said or entry.bytes is None:
        return entry
    how = f"{entry.realized_as} in {entry.dtype}{WIDENED}"
    return replace(entry, bytes=2 * entry.bytes, dtype="f32", realized_as=how)


def _taken_apart(entries: list[Collective], lines: list[Communication]) -> list[Collective]:
    """The same with merged all-reduces as those that the budget lists, if that accounts for all of them."""
    listed = {line.axes for line in lines if line.operation == "all-reduce"}
    reduced = {entry.axes for entry in entries if entry.operation == "all-reduce"}
    lanes = {axes: _lane(("all-reduce", axes), entries, lines) for axes in sorted(reduced)}
    merged = {axes: (lane.seen or 0) - lane.budgeted for axes, lane in lanes.items()}
    merged = {axes: excess for axes, excess in merged.items() if excess > 0 and len(axes) > 1}
    for choice in product(*(_covers(frozenset(axes), sorted(listed - {axes})) for axes in merged)) if merged else ():
        apart = entries
        for (axes, excess), several in zip(merged.items(), choice, strict=True):
            apart = list(_parts(apart, axes, several, excess))
        touched = {axes for several in choice for axes in several}
        alike = all(merged[axes] <= _in_common(several, lines) for axes, several in zip(merged, choice, strict=True))
        if alike and all(_lane(("all-reduce", axes), apart, lines).exact for axes in touched):
            return apart
    return entries


def _covers(axes: frozenset[str], listed: list[tuple[str, ...]]) -> Iterator[tuple[tuple[str, ...], ...]]:
    """The choices of listed axes that are together, each once, these."""
    if not axes:
        yield ()
    for at, part in enumerate(listed):
        if axes.issuperset(part):
            for rest in _covers(axes.difference(part), listed[at + 1 :]):
                yield (part, *rest)


def _parts(
    entries: list[Collective], over: tuple[str, ...], several: tuple[tuple[str, ...], ...], excess: int
) -> Iterator[Collective]:
    """The entries, of which so many bytes over these axes are now over each of several instead."""
    for entry in entries:
        taken = min(excess, entry.bytes or 0) if (entry.operation, entry.axes) == ("all-reduce", over) else 0
        if taken < (entry.bytes or 0) or not taken:
            yield replace(entry, bytes=entry.bytes and entry.bytes - taken)
        for axes in several if taken else ():
            yield replace(entry, axes=axes, bytes=taken, realized_as=f"{entry.realized_as} over {'×'.join(over)}")
        excess -= taken


def _in_common(several: tuple[tuple[str, ...], ...], lines: list[Communication]) -> int:
    """The bytes of the same payloads that are budgeted to be all-reduced over each of these axes."""
    reduced = [line for line in lines if line.operation == "all-reduce"]
    sums = [
        [sum(line.bytes for line in reduced if (line.axes, line.payload) == (axes, payload)) for axes in several]
        for payload in {line.payload for line in reduced}
    ]
    return sum(map(min, sums))


def _lanes(entries: list[Collective], lines: list[Communication]) -> Iterator[Lane]:
    yield from ((entry.operation, entry.axes) for entry in entries)
    yield from ((line.operation, line.axes) for line in lines)


def _lane(lane: Lane, entries: list[Collective], lines: list[Communication]) -> Traffic:
    own = tuple(entry for entry in entries if (entry.operation, entry.axes) == lane)
    budget = tuple(line for line in lines if (line.operation, line.axes) == lane)
    halved = any(ELEMENT_TYPES.get(line.dtype or "") in HALVES for line in budget)
    sizes = [None if entry.bytes is None else entry.bytes - halved * entry.widened // 2 for entry in own]
    seen = None if None in sizes else sum(size for size in sizes if size is not None)
    return Traffic(lane, seen, sum(line.bytes for line in budget), own, budget)
