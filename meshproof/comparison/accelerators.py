"""The facts of one case in two reports that only the compiler of an accelerator has: its wire and its schedule."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from meshproof.comparison.cases import Pair, near
from meshproof.comparison.differences import Change, Difference, Kind

SENT = 0.01
"""Relative change of bytes on the wire that is not reported, as in COM-13."""

SYNCHRONOUS = "bytes of collectives without a start of their own"

HIDDEN = 0.05
"""Fall of the share of bytes with a product behind them that is not reported: schedulers choose. Where bytes became
synchronous at the same time, `SENT` is."""


def compare_accelerated(pair: Pair) -> Iterator[Difference]:
    """What a device sends for what the compilers wrote, what can run meanwhile, and what loops copy."""
    usual = [case.get("usual") or {} for case in pair.both]
    for name, programs in (("step", pair.both), ("step at default precision", usual)):
        yield from _more(pair, "wire", f"{name}: bytes on the wire", [_sent(program) for program in programs])
    old, new = (case.get("schedule") for case in pair.both)
    if absent := pair.presence("schedule", "step", old, new):
        yield absent
    elif old and new:
        copied = [old["copied_in_loops"], new["copied_in_loops"]]
        yield from _more(pair, "schedule", "step: bytes of large copies in loops", copied)
        for fact in _more(pair, "schedule", f"step: {SYNCHRONOUS}", [old["synchronous"], new["synchronous"]]):
            waits = fact.change == "regressed"
            yield replace(fact, change="changed") if waits else fact
            yield from _hidden(pair, _share(old), _share(new), waits)


def _sent(program: Mapping[str, Any]) -> int | None:
    """Bytes on the wire of a compiled step; ``None`` where one is unknown, or the report is older."""
    collectives = program.get("collectives")
    sent = [entry.get("wire_bytes") for entry in collectives or ()]
    return None if collectives is None or None in sent else sum(sent)


def _more(pair: Pair, kind: Kind, place: str, amounts: list[int | None]) -> Iterator[Difference]:
    was, now = amounts
    if was is not None and now is not None:
        change: Change = "same" if near(was, now, SENT) else "regressed" if now > was else "improved"
        yield pair.tell(change, kind, place, *(f"{size:,} bytes" for size in (was, now)))


def _share(schedule: Mapping[str, Any]) -> float | None:
    if schedule["hidden"] is None or schedule["bytes"] is None:
        return None
    return schedule["hidden"] / schedule["bytes"] if schedule["bytes"] else 1.0  # type: ignore[no-any-return]


def _hidden(pair: Pair, was: float | None, now: float | None, waits: bool) -> Iterator[Difference]:
    """A collective that nothing was behind loses nothing where it is written without a start of its own."""
    if was is not None and now is not None:
        change: Change = "same" if abs(now - was) <= HIDDEN else "changed" if now < was else "improved"
        if waits and was - now > SENT:
            change = "regressed"
        place = "step: share of bytes on the wire with a product behind them"
        yield pair.tell(change, "schedule", place, f"{was:.3f}", f"{now:.3f}")
