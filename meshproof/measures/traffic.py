"""A census against a communication budget: bytes by logical operation and mesh axes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from meshproof.contract import ELEMENT_TYPES, Communication
from meshproof.hlo import Collective
from meshproof.measures.verdicts import unequal

HALVES = ("bf16", "f16")
"""Half as wide as float32, in a compiled program's words."""

Lane = tuple[str, tuple[str, ...]]
"""A logical operation and the mesh axes that it runs over."""


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
                return f"{self.lane[0]} over {'×'.join(self.lane[1])} in {dtype}: {unequal(saw, expected, 'bytes')}"
        return ""

    def __str__(self) -> str:
        lane = f"{self.lane[0]} over {'×'.join(self.lane[1])}"
        written = ", ".join(sorted({entry.realized_as for entry in self.entries}))
        phases = ", ".join(sorted({entry.phase for entry in self.entries}))
        found = f" (written as {written}; phase {phases})" if self.entries else ""
        budget = "; ".join(map(str, self.lines)) or f"no line for {lane}"
        return f"{lane}: {unequal(self.seen, self.budgeted, 'bytes')}{found}; budget: {budget}"


def compare_traffic(collectives: Iterable[Collective], budget: Iterable[Communication]) -> tuple[Traffic, ...]:
    """Every lane that is seen or budgeted, sorted."""
    lines = list(budget)
    entries = [_as_budgeted(entry, lines) for entry in collectives]
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

    ZeRO-1 all-reduces a gradient and then updates a slice of it. A compiler without a reduce-scatter of its own writes
    the reduce-scatter of ZeRO-2 in the same way.
    """
    budgeted = {line.operation for line in lines if line.axes == entry.axes}
    sliced = entry.operation == "reduce-scatter" and entry.realized_as.endswith("all-reduce + dynamic-slice")
    if sliced and "reduce-scatter" not in budgeted and "all-reduce" in budgeted:
        return replace(entry, operation="all-reduce")
    return entry


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
