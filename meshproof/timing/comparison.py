"""A benchmark compared with its baseline: its identity and its facts exactly, its time by an interval."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, Literal

from meshproof.timing.ratios import (
    THRESHOLD,
    Ratio,
    Sample,
    SampleError,
    Verdict,
    compare_runs,
    compare_single,
    drift,
)
from meshproof.timing.runs import Benchmark

Outcome = Literal[
    "failed", "refused", "changed", "slower", "missing", "cannot tell", "same", "faster", "new", "not timed"
]
FAILURES: tuple[Outcome, ...] = ("failed", "refused", "changed", "slower", "missing")
"""The outcomes that fail a test, or the command."""


ALONE = (
    "a baseline of one run gives false alarms, as processes with the same code differ in time: before you act on this, "
    "promote three runs, or let `meshproof ab` take turns"
)
"""Added to the message of a slower time if the baseline is of one run."""


TUNED, WORKSPACE = 0.05, 32 * 2**20
"""By how much the peak memory of a GPU's program may differ: by this share, and by so many bytes.

Its compiler tries out kernels, and chooses others in another process. On an H200 one program had a peak of
10,141,139,808 and of 10,141,230,712 bytes; whether a library multiplies, to which XLA gives 32 MiB there to work in,
changed small programs by 33.3 to 33.7 million.
"""


@dataclass(frozen=True)
class Comparison:
    """The outcome of one benchmark.

    ``ratio`` is new over old time, ``on_device`` the same of the seconds in which a device is busy, where both are
    known. ``verdict`` is what they say, even if something else decided the outcome: *slower* if either does, else that
    of the time. ``machine`` is the least and the greatest ratio of the witnesses.
    """

    name: str
    outcome: Outcome
    details: tuple[str, ...] = ()
    ratio: Ratio | None = None
    seconds: tuple[float, float] | None = None
    machine: tuple[float, float] | None = None
    verdict: Verdict | None = None
    on_device: Ratio | None = None

    @property
    def failed(self) -> bool:
        """Whether its test fails."""
        return self.outcome in FAILURES

    def __str__(self) -> str:
        return f"{self.name}: {self.outcome}: {'; '.join(self.details)}".removesuffix(": ")


def compare(
    old: Sequence[Benchmark],
    new: Benchmark,
    threshold: float = THRESHOLD,
    wander: float = 1.0,
    wander_on_device: float = 1.0,
) -> Comparison:
    """One benchmark against all runs of its baseline: *refused* if its identity differs, *changed* if a fact does, else
    the verdict on its time. ``wander`` is the factor by which runs of the same code may differ, ``wander_on_device``
    that of the seconds in which a device is busy.
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
    changed = list(changed_facts(new.identity, old[0].facts, new.facts))
    told = [each.device_seconds for each in old if each.device_seconds]
    busy = told if len(told) == len(old) else []
    on_device = compare_single(busy, new.device_seconds, wander_on_device) if busy and new.device_seconds else None
    verdict = ratio.verdict(threshold)
    details = [f"{line} in its facts" for line in changed]
    if verdict == "slower":
        details.append(f"was {seconds[0]:.4g} s, is {seconds[1]:.4g} s: {ratio}")
    if on_device and on_device.verdict(threshold) == "slower":
        verdict = "slower"
        was_busy, is_busy = f"{median(busy):.4g} s", f"{new.device_seconds:.4g} s"
        details.append(f"a device was busy for {was_busy} of each call, is for {is_busy}: {on_device}")
    if busy and not on_device:
        verdict = "cannot tell" if verdict in ("same", "faster") else verdict
        details.append("no trace of this run says for how long a device was busy, which those of the baseline say")
    if verdict == "cannot tell" and new.busy is not None and not new.device_bound:
        details.append(f"a device is busy for {new.busy:.0%} of it, and waits for the host: a larger --size tells more")
    if verdict == "slower" and len(old) == 1:
        details.append(ALONE)
    machine = min(moved), max(moved)
    outcome = "changed" if changed else verdict
    return Comparison(new.name, outcome, tuple(details), ratio, seconds, machine, verdict, on_device)


def _samples(benchmarks: Sequence[Benchmark]) -> list[Sample]:
    """Their rounds; without witnesses, which run on the host, if a device was busy all the time in each."""
    unslowed = all(each.device_bound for each in benchmarks)
    return [replace(each.sample, witnesses={}) if unslowed else each.sample for each in benchmarks]


def changed_facts(identity: Mapping[str, Any], old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """A line with both values for each deterministic fact that changed; of a GPU's peak memory by more than tuning."""
    was, now = (facts.get("peak_memory_bytes") for facts in (old, new))
    if identity.get("platform") == "gpu" and was and now and abs(now - was) <= TUNED * was + WORKSPACE:
        new = {**new, "peak_memory_bytes": was}
    return differences(old, new)


def differences(old: Mapping[str, Any], new: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """A line with both values for each entry that differs between two nested mappings."""
    for key in sorted(old.keys() | new.keys()):
        was, now = old.get(key), new.get(key)
        if isinstance(was, Mapping) and isinstance(now, Mapping):
            yield from differences(was, now, f"{path}{key} / ")
        elif not equal(was, now) or (key in old) != (key in new):
            yield f"{path}{key} was {show(was, key in old)}, is {show(now, key in new)}"


def equal(was: Any, now: Any) -> bool:
    """Whether two values are one, as NaN and NaN are here."""
    return bool(was == now) or all(isinstance(value, float) and math.isnan(value) for value in (was, now))


def show(value: Any, there: bool) -> str:
    """A value in a message."""
    if not there:
        return "not there"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else repr(value)
