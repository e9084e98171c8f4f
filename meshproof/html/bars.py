"""Amounts of bytes as bars: what a program communicates, and what it keeps in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Pair = tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]
"""A case in the old report and in the new."""

LADDER = ("state", "arguments", "outputs", "aliased", "temporary")


@dataclass(frozen=True)
class Amount:
    """Bytes (``None``: unknown); ``width`` is in percent of the longest bar in the chart."""

    bytes: int | None
    width: float
    note: str = ""


@dataclass(frozen=True)
class Bar:
    """One amount in the old report and in the new; ``None``: absent."""

    label: str
    old: Amount | None
    new: Amount | None


def census_bars(pair: Pair, program: str) -> tuple[Bar, ...] | None:
    """Bytes by mesh axes and operation, per device and step; ``None`` if the program could not be read."""
    if any(case and case[program] is None for case in pair):
        return None
    lanes = [_lanes(case[program]) if case else {} for case in pair]
    return _bars(*lanes)


def memory_bars(pair: Pair) -> tuple[Bar, ...]:
    """Bytes per device by kind, from state to temporary memory."""
    kinds = [(case["memory"] or {}) if case else {} for case in pair]
    order = [kind for kind in LADDER if any(kind in found for found in kinds)]
    order += [kind for found in kinds for kind in found if kind not in LADDER]
    return _bars(*({kind: (found[kind], "") for kind in order if kind in found} for found in kinds))


def _lanes(entries: list[Mapping[str, Any]]) -> dict[str, tuple[int | None, str]]:
    lanes: dict[str, list[Mapping[str, Any]]] = {}
    for entry in sorted(entries, key=lambda entry: (entry["axes"], entry["operation"])):
        lanes.setdefault(f"{entry['operation']} over {'×'.join(entry['axes'])}", []).append(entry)
    return {lane: (_sum([entry["bytes"] for entry in own]), _describe(own)) for lane, own in lanes.items()}


def _describe(entries: list[Mapping[str, Any]]) -> str:
    """Executions, tensors, realisation and phase, in words."""
    runs = _sum([entry["executions"] for entry in entries])
    written, dtypes, phases = (
        ", ".join(sorted({entry[key] for entry in entries})) for key in ("realized_as", "dtype", "phase")
    )
    return f"{'unknown' if runs is None else runs} × {dtypes}, written as {written}; phase {phases}"


def _sum(amounts: list[int | None]) -> int | None:
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if len(known) == len(amounts) else None


def _bars(old: dict[str, tuple[int | None, str]], new: dict[str, tuple[int | None, str]]) -> tuple[Bar, ...]:
    longest = max((amount for amount, _ in (*old.values(), *new.values()) if amount is not None), default=0)

    def scaled(found: tuple[int | None, str] | None) -> Amount | None:
        if found is None:
            return None
        amount, note = found
        return Amount(amount, round(100 * max(amount, 0) / longest, 1) if amount and longest > 0 else 0, note)

    labels = sorted({**new, **old}, key=list({**old, **new}).index)
    return tuple(Bar(label, scaled(old.get(label)), scaled(new.get(label))) for label in labels)
