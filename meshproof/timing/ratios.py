"""The ratio of two times as an interval, and the verdict that it allows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

import numpy as np
import numpy.typing as npt

Verdict = Literal["faster", "slower", "same", "cannot tell"]

THRESHOLD = 0.05
"""A smaller change is called *same*: processes with the same code differ by this much from memory placement alone."""

CONFIDENCE = 0.99
"""The confidence of each interval: a run makes dozens of comparisons, and each can be wrong."""

CERTAINTY = 0.999
"""The probability that no benchmark of a run of the same code is called slower or faster by chance: high, for runs
every night."""

ROUNDS = 8
"""The fewest rounds (or pairs) whose minimum and maximum contain the true median with `CONFIDENCE`."""

RESAMPLES = 4000


class SampleError(ValueError):
    """Times that cannot be compared: too few, not positive, or with other witnesses."""


@dataclass(frozen=True)
class Ratio:
    """New time over old: an estimate, and the interval that contains the true ratio."""

    guess: float
    low: float
    high: float

    def verdict(self, threshold: float = THRESHOLD) -> Verdict:
        """The verdict that the whole interval allows on a change by more than ``threshold`` (0.05 is 5 %)."""
        most = 1 + threshold
        if self.low > most:
            return "slower"
        if self.high < 1 / most:
            return "faster"
        return "same" if self.low >= 1 / most and self.high <= most else "cannot tell"

    def __str__(self) -> str:
        return f"{self.guess:.2f}× [{self.low:.2f}, {self.high:.2f}]"


@dataclass(frozen=True)
class Sample:
    """The seconds of one run's rounds in order, and those of each witness beside them."""

    seconds: Sequence[float]
    witnesses: Mapping[str, Sequence[float]]


def compare_runs(old: Sequence[Sample], new: Sample, wander: float = 1.0) -> Ratio:
    """The ratio of medians of separate runs, with an interval that holds against every old one.

    Successive rounds of a run are correlated, so the interval is that of a circular block bootstrap (Politis and Romano
    1992) with blocks of √n rounds and a fixed seed. Between two runs the machine changes too, and no number of rounds
    tells that from a change of the code (Kalibera and Jones 2013). The witnesses run the same code in both and show it:
    the interval is widened by every factor from 1 to that of each witness. For what they do not see, the interval spans
    those against each old run, and the factor ``wander`` to either side (see `wandering`).

    Raises `SampleError` for fewer than `ROUNDS` rounds, times that are no positive numbers, and other witnesses.
    """
    if not old:
        raise SampleError("there is no old run to compare with")
    return _widened(span([_compare(sample, new) for sample in old]), wander)


def compare_single(old: Sequence[float], new: float, wander: float = 1.0) -> Ratio:
    """The ratio of what each of several runs measured once: it spans those over each old one, and ``wander``."""
    return _widened(span([Ratio(new / each, new / each, new / each) for each in old]), wander)


def wandering(runs: Sequence[Mapping[str, Sequence[float]]]) -> float:
    """The factor by which one more run of the same code may differ from these in any benchmark, at `CERTAINTY`.

    A process shows its own speed once per benchmark, so the variance is pooled over all B benchmarks: the logarithms of
    their medians have a variance s² about their means over the R runs, with f = B·(R − 1) degrees of freedom. The
    prediction interval of one more run is t·s·√(1 + 1/R) to either side (Hahn and Meeker, Statistical Intervals,
    chapter 4), with Student's t of f at 1 − (1 − `CERTAINTY`)/2B, since a run compares all B. With one run nothing is
    known, and the factor is 1.
    """
    count, names = len(runs), list(runs[0])
    if count < 2:
        return 1.0
    from scipy.stats import t

    medians = np.array([[median(run[name]) for name in names] for run in runs])
    freedom = len(names) * (count - 1)
    deviation = math.sqrt(float(np.log(medians).var(axis=0, ddof=1).mean()))
    return math.exp(t.ppf(1 - (1 - CERTAINTY) / (2 * len(names)), freedom) * deviation * math.sqrt(1 + 1 / count))


def span(ratios: Sequence[Ratio]) -> Ratio:
    """Several measurements of one ratio as one: the interval over all of theirs, and the geometric mean."""
    guess = math.exp(sum(math.log(ratio.guess) for ratio in ratios) / len(ratios))
    return Ratio(guess, min(ratio.low for ratio in ratios), max(ratio.high for ratio in ratios))


def drift(old: Sample, new: Sample) -> dict[str, float]:
    """The factor by which each witness was slower in the new run: due to the machine, not to the code."""
    if old.witnesses.keys() != new.witnesses.keys():
        named = (", ".join(sorted(sample.witnesses)) or "none" for sample in (old, new))
        raise SampleError("the witnesses of the two runs differ: {}, and {}".format(*named))
    return {name: median(new.witnesses[name]) / median(times) for name, times in old.witnesses.items()}


def compare_pairs(old: Sequence[float], new: Sequence[float]) -> Ratio:
    """The ratio of two processes that took turns: old, new, new, old, and so on.

    Each pair gives one logarithm of the ratio. In this order, a drift of the machine enters successive pairs with
    opposite signs. The interval of their median is exact, from the binomial distribution, for any distribution of the
    noise (Conover, Practical Nonparametric Statistics, section 3.2).

    Raises `SampleError` for unequal numbers of rounds, for fewer than `ROUNDS`, and for times that are no positive
    numbers.
    """
    if len(old) != len(new):
        raise SampleError(f"{len(old)} old and {len(new)} new rounds; expected pairs")
    if len(old) < ROUNDS:
        raise SampleError(f"{len(old)} pairs of rounds; expected {ROUNDS} or more")
    steps = _logarithms(new) - _logarithms(old)
    return Ratio(*np.exp(median_interval(steps.tolist())).tolist())


def median_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """The median of a sample, and the ends of the interval of the true median.

    The interval is that of `compare_pairs`, in the unit of the values. Raises `SampleError` for fewer than `ROUNDS`.
    """
    if len(values) < ROUNDS:
        raise SampleError(f"{len(values)} values; expected {ROUNDS} or more")
    ordered, outside = sorted(values), _outside(len(values))
    return median(ordered), ordered[outside], ordered[-1 - outside]


def _widened(ratio: Ratio, wander: float) -> Ratio:
    return Ratio(ratio.guess, min(ratio.low, ratio.guess / wander), max(ratio.high, ratio.guess * wander))


def _compare(old: Sample, new: Sample) -> Ratio:
    generator = np.random.default_rng(0)
    x, y = _logarithms(old.seconds), _logarithms(new.seconds)
    for rounds in (x, y):
        if len(rounds) < ROUNDS:
            raise SampleError(f"{len(rounds)} rounds; expected {ROUNDS} or more")
    moved = [0.0, *(math.log(factor) for factor in drift(old, new).values())]
    differences = _medians(y, generator) - _medians(x, generator)
    low, high = np.quantile(differences, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    guess = np.median(y) - np.median(x)
    return Ratio(*np.exp([guess, low - max(moved), high - min(moved)]).tolist())


def _logarithms(seconds: Sequence[float]) -> npt.NDArray[np.float64]:
    times = np.asarray(seconds, np.float64)
    if not (np.isfinite(times).all() and (times > 0).all()):
        raise SampleError(f"times must be positive numbers of seconds; got {min(seconds)}")
    return np.log(times)


def _medians(rounds: npt.NDArray[np.float64], generator: np.random.Generator) -> npt.NDArray[np.float64]:
    """The medians of `RESAMPLES` resampled runs of the same length: blocks of this one, taken as a circle."""
    length = math.isqrt(len(rounds) - 1) + 1
    blocks = -(-len(rounds) // length)
    starts = generator.integers(0, len(rounds), (RESAMPLES, blocks, 1))
    chosen = (starts + np.arange(length)) % len(rounds)
    return np.median(rounds[chosen.reshape(RESAMPLES, -1)[:, : len(rounds)]], axis=1)


def _outside(count: int) -> int:
    """How many of so many sorted values are outside the interval of their median, on either side."""
    tail, outside = 0.5**count, -1
    while 2 * tail <= 1 - CONFIDENCE:
        outside += 1
        tail += math.comb(count, outside + 1) * 0.5**count
    return outside
