"""Loss curves of a case against its truth, as the paths of a small SVG. Steps count from one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from typing import Any

from meshproof.html.units import as_float, describe_number

WIDTH, HEIGHT = 340, 190
LEFT, RIGHT, TOP, BOTTOM = 50, 12, 12, 30
MARKED = 32
"""A curve of more steps has no dots."""

Values = Sequence[float | None]


@dataclass(frozen=True)
class Curve:
    """A series in chart coordinates; ``path`` is interrupted at a loss that is no number."""

    name: str
    path: str
    dots: tuple[tuple[float, float, str], ...]
    ends: str


@dataclass(frozen=True)
class LossChart:
    """Curves, ticks as (position, label), the numbers by step, and the distance of each report from its truth."""

    curves: tuple[Curve, ...]
    across: tuple[tuple[float, str], ...]
    up: tuple[tuple[float, str], ...]
    names: tuple[str, ...]
    steps: tuple[tuple[float | None, ...], ...]
    deviations: tuple[tuple[str, str], ...]


def draw_losses(pair: tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]) -> LossChart | None:
    """The curves of the old case, of the new one and of the truth; ``None`` if no step was taken."""
    series = {name: values for name, values in _series(*pair).items() if values}
    known = [value for values in series.values() for value in values if value is not None]
    if not known:
        return None
    low, high = min(known), max(known)
    if low == high:
        low, high = low - (abs(low) or 1) / 10, high + (abs(high) or 1) / 10
    last = max(map(len, series.values())) - 1

    def across(step: int) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * (step / last if last else 0.5), 1)

    def up(value: float) -> float:
        return round(TOP + (HEIGHT - TOP - BOTTOM) * (high / 2 - value / 2) / (high / 2 - low / 2), 1)

    curves = tuple(
        _curve(
            name, [value if value is None else (across(step), up(value)) for step, value in enumerate(values)], values
        )
        for name, values in series.items()
    )
    steps = sorted({0, last, *(range(last) if last < 8 else (last // 2,))})
    levels = (low, low / 2 + high / 2, high)
    return LossChart(
        curves,
        tuple((across(step), str(step + 1)) for step in steps),
        tuple((up(level), describe_number(level, 3)) for level in levels),
        tuple(series),
        tuple(zip_longest(*series.values())),
        tuple(_deviations(series)),
    )


def _series(old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> dict[str, Values]:
    """The series to draw; two equal truths are one series."""
    truths = [[as_float(loss) for loss in case["expected_losses"]] if case else [] for case in (old, new)]
    series: dict[str, Values] = {"truth": truths[1] or truths[0]}
    if truths[0] and truths[1] and truths[0] != truths[1]:
        series = {"old truth": truths[0], "truth": truths[1]}
    for name, case in (("old", old), ("new", new)):
        series[name] = [as_float(loss) for loss in case["losses"]] if case else []
    return series


def _curve(name: str, points: Sequence[tuple[float, float] | None], values: Values) -> Curve:
    path = "".join(
        f"{'L' if before else 'M'}{here[0]:g} {here[1]:g}" for before, here in pairwise([None, *points]) if here
    )
    dots = [
        (*point, f"step {step}: {describe_number(value, 9)}")
        for step, (point, value) in enumerate(zip(points, values, strict=True), start=1)
        if point and len(points) <= MARKED
    ]
    return Curve(name, path, tuple(dots), f"{describe_number(values[0])} to {describe_number(values[-1])}")


def _deviations(series: Mapping[str, Values]) -> list[tuple[str, str]]:
    """The step at which each report is farthest from its own truth, in words."""
    truths = {"old": series.get("old truth") or series.get("truth"), "new": series.get("truth")}
    told = []
    for name, truth in truths.items():
        found = [
            (abs(seen - expected), step)
            for step, (seen, expected) in enumerate(zip(series.get(name, ()), truth or (), strict=False), start=1)
            if seen is not None and expected is not None
        ]
        if found:
            worst, step = max(found, key=lambda each: each[0])
            far = f"at most {describe_number(worst, 2)} from truth, at step {step}"
            told.append((name, far if worst else "exactly the truth"))
    return told
