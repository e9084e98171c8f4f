"""What a comparison found, leaf by leaf, in words: error, what is allowed, margin, the first divergent leaf."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isfinite
from typing import Literal

SHOWN = 3
"""How many failed leaves a verdict shows."""

Failure = Literal["missing", "unexpected", "shape", "dtype", "non-finite", "exceeds", "differs", "vacuous"]


@dataclass(frozen=True)
class LeafRecord:
    """What was seen of one leaf. ``error``, ``allowed`` and ``signal`` are Frobenius norms; ``detail`` is for people.

    Where no error can be measured it is infinite. In a record of `bitwise` the error counts elements that differ.
    """

    path: str
    error: float
    allowed: float
    signal: float
    failure: Failure | None = None
    detail: str = ""

    @property
    def margin(self) -> float:
        """``error / allowed``: above one is a failure. 0/0 is 0, for what must be exact and is; x/0 is infinite."""
        return ratio(self.error, self.allowed)

    @property
    def relative(self) -> float:
        """``error / signal``, the relative Frobenius norm, with the same 0/0 and x/0."""
        return ratio(self.error, self.signal)

    def __str__(self) -> str:
        said = f"{self.path} {self.detail}".rstrip()
        if not isfinite(self.error):
            return f"{said} [margin inf]"
        margin = f"margin {self.margin:.3g}, relative error {self.relative:.2g}"
        return f"{said} [error {self.error:.3g}, allowed {self.allowed:.3g}, {margin}]"


@dataclass(frozen=True, repr=False)
class Verdict:
    """The records of one part (such as "gradients of step 1"), in model order. Its text is for the person who acts."""

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
        """The largest margin of all leaves; infinite where there was nothing to judge."""
        return max((record.margin for record in self.records), default=inf)

    def __str__(self) -> str:
        if not self.records:
            return f"{self.part}: nothing was judged, there are no leaves"
        if self.passed:
            return f"{self.part}: {len(self.records)} leaves within their bounds, largest margin {self.margin:.3g}"
        count, first = len(self.failures), self.failures[0].path
        head = f"{self.part}: {count} of {len(self.records)} leaves failed, first {first} in model order"
        shown = [*map(str, self.failures[:SHOWN])]
        if count > SHOWN:
            worst = max(self.failures, key=lambda record: record.margin)
            shown.append(f"and {count - SHOWN} more, the worst of all is {worst.path} with margin {worst.margin:.3g}")
        return "\n  ".join([head, *shown])

    __repr__ = __str__


def compared(seen: float | None, allowed: float, unit: str) -> str:
    """An amount in words, beside the one that is allowed; ``None`` is an amount that nobody knows."""
    if seen is None:
        return f"an unknown number of {unit} seen, {allowed:,} allowed, margin inf"
    excess = f"{abs(seen - allowed):,} too {'many' if seen > allowed else 'few'}" if seen != allowed else "as many"
    return f"{seen:,} {unit} seen, {allowed:,} allowed, {excess}, margin {ratio(seen, allowed):.3f}"


def ratio(part: float, whole: float) -> float:
    """``part / whole``; 0/0 is 0 and x/0 is infinite."""
    return part / whole if whole else (inf if part else 0.0)
