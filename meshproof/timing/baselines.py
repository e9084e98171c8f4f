"""Baselines: one file per machine, apart from saved runs, and written by `promote` only."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any

from meshproof.files import replace_text
from meshproof.timing.comparison import Comparison, changed_facts, compare, differences
from meshproof.timing.ratios import ROUNDS, THRESHOLD, wandering
from meshproof.timing.runs import MACHINE, Benchmark, Run, RunError, parse_run, read_json, read_run

FOLDER = "benchmarks/baselines"
SCHEMA = 1
"""The version of a baseline's format."""

ACCEPTABLE = {
    "slower": "a time that is slower",
    "cannot tell": "a time whose interval includes both a change and none",
    "changed": "a deterministic fact that changed",
    "refused": "a benchmark whose identity changed",
    "missing": "a benchmark that the baseline has and the run has not",
    "machine": "the first baseline of another machine",
}
"""What a promotion may be told to accept. A failed test or an unfinished run cannot be accepted."""


@dataclass(frozen=True)
class Baseline:
    """What later runs on a machine are compared with: one run, or several of the same code.

    ``anchor`` are the first runs that were promoted, or those at which a slower time or another identity was last
    accepted. Compared with them, small slowdowns add up that no single promotion shows.
    """

    path: Path
    runs: Sequence[Run]
    anchor: Sequence[Run]

    @property
    def machine(self) -> dict[str, Any]:
        """The machine that it was timed on, and the size."""
        return self.runs[0].machine

    def of(self, name: str) -> list[Benchmark]:
        """A benchmark in each of the runs; empty if the baseline does not have it."""
        return [run.benchmarks[name] for run in self.runs if name in run.benchmarks]

    @cached_property
    def wander(self) -> float:
        """The factor by which one more run of the same code may differ from these."""
        return wandering([{name: each.sample.seconds for name, each in run.benchmarks.items()} for run in self.runs])

    @cached_property
    def wander_on_device(self) -> float | None:
        """The same of the seconds in which a device is busy; ``None`` where no benchmark has them in each run."""
        busy = [
            {name: [seconds] for name, each in run.benchmarks.items() if (seconds := each.device_seconds)}
            for run in self.runs
        ]
        known = set.intersection(*map(set, busy))
        return wandering([{name: run[name] for name in sorted(known)} for run in busy]) if known else None

    @property
    def reach(self) -> str:
        """Its number of runs, and how slow a later run must be to be called slower."""
        if len(self.runs) == 1:
            return "(1 run). It gives false alarms: how much runs of the same code differ is not known; promote three."
        least, busy = self.wander * (1 + THRESHOLD), self.wander_on_device
        on_device = f", or {busy * (1 + THRESHOLD):.2f}× that of a device" if busy else ""
        return f"({len(self.runs)} runs). Slower means more than {least:.2f}× its time{on_device}."

    @property
    def names(self) -> list[str]:
        """The names of its benchmarks."""
        return list(self.runs[0].benchmarks)

    def compare(self, new: Mapping[str, Benchmark], threshold: float = THRESHOLD) -> list[Comparison]:
        """Every benchmark of the run, in its order, then those that only the baseline has."""
        found = [
            compare(old, benchmark, threshold, self.wander, self.wander_on_device or 1.0)
            if (old := self.of(name))
            else Comparison(name, "new")
            for name, benchmark in new.items()
        ]
        return [*found, *(Comparison(name, "missing") for name in self.names if name not in new)]


def read_baseline(path: Path) -> Baseline:
    """A baseline, or a single run in its place. Raises `RunError`."""
    raw = read_json(path)
    if not isinstance(raw, dict) or "runs" not in raw:
        alone = [read_run(path)]
        return Baseline(path, alone, alone)
    if raw.get("schema") != SCHEMA:
        raise RunError(f"{path} has schema {raw.get('schema')!r}, this meshproof reads {SCHEMA}; promote a run again")
    held = [raw["runs"], raw.get("anchor", raw["runs"])]
    runs, anchor = ([parse_run(run, path) for run in part] if isinstance(part, list) else [] for part in held)
    if not (runs and anchor and all(run.benchmarks for run in (*runs, *anchor))):
        raise RunError(f"{path} holds no run, or one without a benchmark; promote one")
    if any(run.benchmarks.keys() != part[0].benchmarks.keys() for part in (runs, anchor) for run in part):
        raise RunError(f"{path} holds runs of other benchmarks than its first; promote such as have the same")
    return Baseline(path, runs, anchor)


def read_baselines(folder: Path) -> list[Baseline]:
    """All baselines of a folder; none if it does not exist. Raises `RunError`."""
    return [read_baseline(path) for path in sorted(folder.glob("*.json"))]


def choose(baselines: Sequence[Baseline], machine: Mapping[str, Any]) -> Baseline:
    """The baseline of a machine. Raises `RunError` if there are two, or none; it names how the others differ."""
    if own := _own(baselines, machine):
        return own
    advice = "run on that machine, or promote a run of this one with `meshproof baseline promote RUN --accept machine`"
    raise RunError(f"{_foreign(baselines, machine)}; {advice}")


def _own(baselines: Sequence[Baseline], machine: Mapping[str, Any]) -> Baseline | None:
    found = [baseline for baseline in baselines if baseline.machine == machine]
    if len(found) > 1:
        paths = " and ".join(str(baseline.path) for baseline in found)
        raise RunError(f"{paths} are all of this machine: remove those that are not to be compared with")
    return found[0] if found else None


def promote(paths: Sequence[Path], folder: Path, accepted: Collection[str] = ()) -> Path:
    """Make runs of the same code the baseline of their machine; returns the file.

    Each run is compared with the others and with the current baseline. Raises `RunError` that names every obstacle, and
    those that can be accepted.
    """
    runs = [read_run(path) for path in paths]
    if unknown := sorted(set(accepted) - set(ACCEPTABLE)):
        raise RunError(f"--accept {', '.join(unknown)}: expected some of {', '.join(ACCEPTABLE)}")
    if broken := [f"{run.path}: {test}: {why}" for run in runs for test, why in (*run.problems.items(), *_short(run))]:
        raise RunError("not promoted, and this cannot be accepted: " + "\n  ".join(broken))
    for run, other in combinations(runs, 2):
        _check_alike(run, other)
    baselines = read_baselines(folder)
    standing = _own(baselines, runs[0].machine)
    obstacles = list(_obstacles(runs, baselines, standing))
    if barred := [(kind, line) for kind, line in obstacles if kind not in accepted]:
        kinds = " ".join(f"--accept {kind!r}" for kind in dict(barred))
        lines = "\n  ".join(line for _, line in barred)
        raise RunError(f"not promoted:\n  {lines}\n  to accept all of this: {kinds}")
    kept = standing and standing.anchor if {"slower", "refused"}.isdisjoint(dict(obstacles)) else None
    held = {"runs": runs, "anchor": kept or runs}
    baseline = {"schema": SCHEMA, "machine": runs[0].machine}
    path = folder / f"{_slug(runs[0].machine)}.json" if standing is None else standing.path
    folder.mkdir(parents=True, exist_ok=True)
    replace_text(path, json.dumps(baseline | {part: [run.raw for run in held[part]] for part in held}, indent=1))
    return path


def _short(run: Run) -> Iterator[tuple[str, str]]:
    """Benchmarks with too few rounds, and a sentence that says so."""
    for name, benchmark in run.benchmarks.items():
        if len(benchmark.sample.seconds) < ROUNDS:
            yield name, f"{len(benchmark.sample.seconds)} rounds; expected {ROUNDS} or more"


def _obstacles(
    runs: Sequence[Run], baselines: Sequence[Baseline], standing: Baseline | None
) -> Iterator[tuple[str, str]]:
    """Each obstacle to a promotion: its kind in `ACCEPTABLE`, and a sentence."""
    if standing is None:
        machine = {key: runs[0].machine[key] for key in MACHINE}
        if baselines and not any(machine.items() <= baseline.machine.items() for baseline in baselines):
            yield "machine", _foreign(baselines, runs[0].machine)
        for run in runs:
            for name, outcome in run.outcomes.items():
                if outcome in ACCEPTABLE:
                    yield outcome, f"{run.path}: {name}: {outcome} when it was run"
        return
    anchor = Baseline(standing.path, standing.anchor, standing.anchor)
    for run in runs:
        found = standing.compare(run.benchmarks)
        for each in found:
            kinds = dict.fromkeys((each.outcome, each.verdict))
            yield from ((kind, f"{run.path}: {each}") for kind in kinds if kind in ACCEPTABLE)
        told = {each.name for each in found if each.verdict == "slower"}
        for each in anchor.compare(run.benchmarks):
            if each.verdict == "slower" and each.name not in told:
                yield "slower", f"{run.path}: {each}, compared with the first baseline"


def _check_alike(first: Run, other: Run) -> None:
    """Raises `RunError` if two runs differ in anything but time, or are the same run."""
    reasons = list(differences(first.machine, other.machine))
    reasons += differences(dict.fromkeys(first.benchmarks, "there"), dict.fromkeys(other.benchmarks, "there"))
    for name in first.benchmarks.keys() & other.benchmarks.keys():
        old, new = (run.benchmarks[name] for run in (first, other))
        lines = [*differences(old.identity, new.identity), *differences(old.stack, new.stack)]
        lines += changed_facts(new.identity, old.facts, new.facts)
        reasons += [f"{name}: {line}" for line in lines]
        if old.sample == new.sample:
            reasons.append(f"{name} has the same times in both: they are one run")
    if reasons:
        raise RunError(f"{first.path} and {other.path} are not runs of the same code: {'; '.join(reasons)}")


def _foreign(baselines: Sequence[Baseline], machine: Mapping[str, Any]) -> str:
    return "; ".join(
        f"{baseline.path} is of another machine: {', '.join(differences(baseline.machine, machine))}"
        for baseline in baselines
    )


def _slug(machine: Mapping[str, Any]) -> str:
    return re.sub(r"[^a-z0-9]+", "-", "-".join(str(value) for value in machine.values() if value).lower()).strip("-")
