"""A benchmark held against its baseline: refused, its facts exactly, its time by an interval."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, Literal

from meshproof.timing.ratios import THRESHOLD, Ratio, Sample, SampleError, Verdict, compare_runs, drift
from meshproof.timing.runs import Benchmark

Outcome = Literal[
    "failed", "refused", "changed", "slower", "missing", "cannot tell", "same", "faster", "new", "not timed"
]
FAILURES: tuple[Outcome, ...] = ("failed", "refused", "changed", "slower", "missing")
"""The outcomes that fail a test, or the command."""


ALONE = (
    "the baseline is of one run, and does not know what processes of the same code differ by here: before you act on "
    "it, promote three, or let `meshproof ab` take turns"
)
"""What is said of a slower time where nothing but the rounds and the witnesses of two runs are known."""


@dataclass(frozen=True)
class Comparison:
    """What came of one benchmark.

    ``ratio`` is new over old time, and ``verdict`` what it says, whatever else decided; ``machine`` is that of the
    witnesses, least and most.
    """

    name: str
    outcome: Outcome
    details: tuple[str, ...] = ()
    ratio: Ratio | None = None
    seconds: tuple[float, float] | None = None
    machine: tuple[float, float] | None = None
    verdict: Verdict | None = None

    @property
    def failed(self) -> bool:
        """Whether its test fails."""
        return self.outcome in FAILURES

    def __str__(self) -> str:
        return f"{self.name}: {self.outcome}: {'; '.join(self.details)}".removesuffix(": ")


def compare(old: Sequence[Benchmark], new: Benchmark, threshold: float = THRESHOLD, wander: float = 1.0) -> Comparison:
    """One benchmark against all runs of its baseline, the first question that decides: may they be compared at all
    (`Benchmark.identity`), did a fact change, did the time? ``wander`` is what runs of the same code may differ by.
    """
    if odd := list(differences(old[0].identity, new.identity)):
        advice = "times of different things are not compared; compare with a run like this one, or promote this one"
        return Comparison(new.name, "refused", (*(f"{line} in its identity" for line in odd), advice))
    try:
        *was, now = _samples([*old, new])
        ratio = compare_runs(was, now, wander)
        moved = [factor for each in was for factor in drift(each, now).values()] or [1.0]
    except SampleError as error:
        return Comparison(new.name, "refused", (str(error),))
    seconds = (median(second for each in old for second in each.sample.seconds), median(new.sample.seconds))
    changed = list(differences(old[0].facts, new.facts))
    verdict = ratio.verdict(threshold)
    details = [f"{line} in its facts" for line in changed]
    if verdict == "slower":
        details.append(f"{seconds[0]:.4g} s was, {seconds[1]:.4g} s is: {ratio}")
        if len(old) == 1:
            details.append(ALONE)
    return Comparison(
        new.name, "changed" if changed else verdict, tuple(details), ratio, seconds, (min(moved), max(moved)), verdict
    )


def _samples(benchmarks: Sequence[Benchmark]) -> list[Sample]:
    """Their rounds, with the witnesses, which are of the host, unless no host could slow any of them."""
    unslowed = all(each.device_bound for each in benchmarks)
    return [replace(each.sample, witnesses={}) if unslowed else each.sample for each in benchmarks]


def differences(old: Mapping[str, Any], new: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Each entry that is not equal in two nested mappings, with both values."""
    for key in sorted(old.keys() | new.keys()):
        was, now = old.get(key), new.get(key)
        if isinstance(was, Mapping) and isinstance(now, Mapping):
            yield from differences(was, now, f"{path}{key} / ")
        elif was != now or (key in old) != (key in new):
            yield f"{path}{key} was {show(was, key in old)}, is {show(now, key in new)}"


def show(value: Any, there: bool) -> str:
    """A value in a message."""
    if not there:
        return "not there"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else repr(value)
