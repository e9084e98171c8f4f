"""What a comparison found, leaf by leaf, in words: error, bound and margin, and the first leaf that differs."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isinf
from typing import Literal

SHOWN = 3
"""How many failed leaves a verdict shows."""

MOST = 1024
"""The largest multiple that a message names: more copies than these are no multiple but a coincidence."""

Failure = Literal["missing", "unexpected", "shape", "dtype", "non-finite", "exceeds", "differs", "vacuous"]


@dataclass(frozen=True)
class LeafRecord:
    """The result of judging one leaf. ``error``, ``allowed`` and ``signal`` are Frobenius norms; ``detail`` is words.

    An error that cannot be measured is infinite. In a record of `bitwise` it counts the elements that differ.
    """

    path: str
    error: float
    allowed: float
    signal: float
    failure: Failure | None = None
    detail: str = ""

    @property
    def margin(self) -> float:
        """``error / allowed``: above 1 is a failure. 0/0 is 0 (exact, as it must be); x/0 is infinite."""
        return ratio(self.error, self.allowed)

    @property
    def relative(self) -> float:
        """``error / signal``: the relative Frobenius norm, with 0/0 = 0 and x/0 infinite."""
        return ratio(self.error, self.signal)

    def __str__(self) -> str:
        """Only a measured error that is held to a bound has a margin here."""
        said = f"{self.path} {self.detail}".rstrip()
        if self.failure not in (None, "exceeds"):
            return said
        margin = f"margin {self.margin:.3g}, relative error {self.relative:.2g}"
        return f"{said} [error {self.error:.3g}, allowed {self.allowed:.3g}, {margin}]"


@dataclass(frozen=True, repr=False)
class Verdict:
    """The records of one part (such as "gradients of step 1"), in model order. Its text is shown in failures."""

    part: str
    records: tuple[LeafRecord, ...]

    @property
    def passed(self) -> bool:
        """Whether every leaf is within its bound, and there was at least one to judge."""
        return bool(self.records) and not self.failures

    @property
    def failures(self) -> tuple[LeafRecord, ...]:
        """The failed leaves, in model order."""
        return tuple(record for record in self.records if record.failure)

    @property
    def first_divergent(self) -> LeafRecord | None:
        """The first failed leaf in model order."""
        return next(iter(self.failures), None)

    @property
    def margin(self) -> float:
        """The largest margin of all leaves; infinite if there is none."""
        return max((record.margin for record in self.records), default=inf)

    def __str__(self) -> str:
        if not self.records:
            return f"{self.part}: nothing was judged, there are no leaves"
        if self.passed:
            return f"{self.part}: {len(self.records)} leaves within their bounds, largest margin {self.margin:.3g}"
        if len(self.records) == 1:
            return f"{self.part}: {self.records[0]}"
        count, first = len(self.failures), self.failures[0].path
        head = f"{self.part}: {count} of {len(self.records)} leaves failed; the first in model order is {first}"
        shown = [*map(str, self.failures[:SHOWN])]
        if count > SHOWN:
            worst = max(self.failures, key=lambda record: record.margin)
            margin = f"; the worst of all is {worst.path}, margin {worst.margin:.3g}"
            shown.append(f"and {count - SHOWN} more{margin if worst.failure == 'exceeds' else ''}")
        return "\n  ".join([head, *shown])

    __repr__ = __str__


def unequal(seen: float | None, expected: float, unit: str) -> str:
    """An amount that differs from the expected one, in words; ``None`` and infinity are unknown amounts."""
    if seen is None or isinf(seen):
        return f"expected {expected:,} {unit}, saw an unknown number"
    return f"expected {expected:,} {unit}, saw {seen:,}{_times(seen, expected)}"


def _times(seen: float, expected: float) -> str:
    """A whole multiple, or a whole part, of what was expected: it points at what is repeated, or left out."""
    if seen and expected:
        for times, said in ((seen / expected, "{} times as many"), (expected / seen, "1/{} of that")):
            if 1 < round(times) == round(times, 3) <= MOST:
                return f", {said.format(round(times))}"
    return ""


def ratio(part: float, whole: float) -> float:
    """``part / whole``; 0/0 is 0 and x/0 is infinite."""
    return part / whole if whole else (inf if part else 0.0)
