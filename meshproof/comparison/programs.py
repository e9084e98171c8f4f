"""Programs of several sizes in two reports: what JAX makes of them, and how long it takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from meshproof.comparison.differences import Change, Difference
from meshproof.comparison.operations import paired, problem

GROWN = 1.25
"""The factor by which a count must grow to be a regression. Counts are exact, so any other change is told, too."""

NOISE = 2.0
"""The factor by which times must differ to be told."""

Report = Mapping[str, Any]
Size = tuple[int, int]
"""Depth and width."""
Amounts = Mapping[Size, float]


def compare_programs(old: Report, new: Report) -> Iterator[Difference]:
    """Every fact of the programs that both runs measured: each count, and each time in units of a yardstick."""
    pairs, absent = paired(old, new, "programs", "growth")
    yield from absent
    for name, was, now in pairs:
        yield problem("growth", name, ("made", "compiles"), was, now)
        if was["problem"] or now["problem"]:
            continue
        olds, news = ({(each["depth"], each["width"]): each for each in entry["sizes"]} for entry in (was, now))
        if olds.keys() != news.keys():
            yield Difference("gone", "growth", name, "sizes", *map(_listed, (olds, news)))
            continue
        for member, difference in (("counts", _count), ("times", _time)):
            first, *others = ({*each[member]} for each in (*olds.values(), *news.values()))
            for what in sorted(first.intersection(*others)):
                yield difference(
                    name, what, *({size: each[member][what] for size, each in own.items()} for own in (olds, news))
                )


def _count(name: str, what: str, was: Amounts, now: Amounts) -> Difference:
    """More at any size by `GROWN` is a regression."""
    change: Change = "same" if was == now else "changed"
    if any(now[size] > GROWN * was[size] for size in was):
        change = "regressed"
    elif any(was[size] > GROWN * now[size] for size in was):
        change = "improved"
    return Difference(change, "growth", name, what, *(f"{_per_layer(own)}{_at(own, ',')}" for own in (was, now)))


def _time(name: str, what: str, was: Amounts, now: Amounts) -> Difference:
    """All sizes together: what each takes of itself is short."""
    factor = sum(now.values()) / max(sum(was.values()), 1e-9)
    change: Change = "regressed" if factor > NOISE else "improved" if factor < 1 / NOISE else "same"
    before, after = (f"{_at(own, '.3g')}, in yardsticks" for own in (was, now))
    return Difference(change, "growth", name, what, before, f"{after}: {factor:.3g} times as long")


def _per_layer(counts: Amounts) -> str:
    """By how much a program of the least width grows for each layer of depth."""
    narrow = {depth: count for (depth, width), count in counts.items() if width == min(width for _, width in counts)}
    (shallow, few), (deep, many) = min(narrow.items()), max(narrow.items())
    return f"{(many - few) / (deep - shallow):.3g} a layer: " if deep > shallow else ""


def _at(amounts: Amounts, form: str) -> str:
    """As ``318 at depth 6, 1,254 at depth 24, 318 at width 64``."""
    narrowest = min(width for _, width in amounts)
    told = (
        f"{amount:{form}} at {f'depth {depth}' if width == narrowest else f'width {width}'}"
        for (depth, width), amount in amounts.items()
    )
    return ", ".join(told)


def _listed(sizes: Mapping[Size, Any]) -> str:
    return "; ".join(f"depth {depth}, width {width}" for depth, width in sizes)
