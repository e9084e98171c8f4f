"""Baselines: one file for each machine, apart from the runs that are saved, and written by `promote` alone."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meshproof.files import replace_text
from meshproof.timing.comparison import Comparison, compare, differences
from meshproof.timing.ratios import THRESHOLD
from meshproof.timing.runs import Benchmark, Run, RunError, parse_run, read_json, read_run

FOLDER = "benchmarks/baselines"
SCHEMA = 1
"""The version of a baseline's format."""

ACCEPTABLE = {
    "slower": "a time that is slower",
    "cannot tell": "a time of which the interval does not tell",
    "changed": "a deterministic fact that changed",
    "refused": "a benchmark whose identity changed",
    "missing": "a benchmark that the baseline has and the run has not",
    "machine": "the first baseline of another machine",
}
"""What a promotion may be told to accept. A test that failed, or a run that did not end, never is."""


@dataclass(frozen=True)
class Baseline:
    """What a machine's later runs are held against: one run, or several of the same code."""

    path: Path
    runs: Sequence[Run]

    @property
    def machine(self) -> dict[str, Any]:
        """Where it was timed."""
        return self.runs[0].machine

    def of(self, name: str) -> list[Benchmark]:
        """A benchmark in each of the runs; none where the baseline does not have it."""
        return [run.benchmarks[name] for run in self.runs if name in run.benchmarks]

    @property
    def names(self) -> list[str]:
        """Its benchmarks."""
        return list(self.runs[0].benchmarks)

    def compare(self, new: Mapping[str, Benchmark], threshold: float = THRESHOLD) -> list[Comparison]:
        """Every benchmark that one of the two has, in the run's order, and then what is missing."""
        found = [
            compare(old, benchmark, threshold) if (old := self.of(name)) else Comparison(name, "new")
            for name, benchmark in new.items()
        ]
        return [*found, *(Comparison(name, "missing") for name in self.names if name not in new)]


def read_baseline(path: Path) -> Baseline:
    """A baseline, or a single run in its place. Raises `RunError`."""
    raw = read_json(path)
    if not isinstance(raw, dict) or "runs" not in raw:
        return Baseline(path, [read_run(path)])
    if raw.get("schema") != SCHEMA:
        raise RunError(f"{path} has schema {raw.get('schema')!r}, this meshproof reads {SCHEMA}; promote a run anew")
    runs = [parse_run(run, path) for run in raw["runs"]]
    if not runs:
        raise RunError(f"{path} holds no run; promote one")
    return Baseline(path, runs)


def read_baselines(folder: Path) -> list[Baseline]:
    """All of a folder; none where it does not exist. Raises `RunError`."""
    return [read_baseline(path) for path in sorted(folder.glob("*.json"))]


def choose(baselines: Sequence[Baseline], machine: Mapping[str, Any]) -> Baseline:
    """That of a machine. Raises `RunError` that names what differs from each of the others."""
    for baseline in baselines:
        if baseline.machine == machine:
            return baseline
    advice = "run on that machine, or promote a run of this one with `meshproof baseline promote RUN --accept machine`"
    raise RunError(f"{_foreign(baselines, machine)}; {advice}")


def promote(paths: Sequence[Path], folder: Path, accepted: Collection[str] = ()) -> Path:
    """Make runs of the same code the baseline of their machine; returns the file.

    The first run is held against the baseline that stands, and the others against the first. Raises `RunError` that
    names everything that is in the way, and what of it can be accepted.
    """
    runs = [read_run(path) for path in paths]
    if unknown := sorted(set(accepted) - set(ACCEPTABLE)):
        raise RunError(f"--accept {', '.join(unknown)}: expected some of {', '.join(ACCEPTABLE)}")
    if broken := [f"{run.path}: {test}: {why}" for run in runs for test, why in run.problems.items()]:
        raise RunError("not promoted, and nothing can be accepted of it: " + "\n  ".join(broken))
    for run in runs[1:]:
        _check_alike(runs[0], run)
    obstacles = list(_obstacles(runs, read_baselines(folder)))
    if barred := [(kind, line) for kind, line in obstacles if kind not in accepted]:
        kinds = " ".join(f"--accept {kind!r}" for kind in dict(barred))
        lines = "\n  ".join(line for _, line in barred)
        raise RunError(f"not promoted:\n  {lines}\n  where all of this is meant, say so: {kinds}")
    machine = runs[0].machine
    path = folder / f"{_slug(machine)}.json"
    folder.mkdir(parents=True, exist_ok=True)
    baseline = {"schema": SCHEMA, "machine": machine, "runs": [run.raw for run in runs]}
    replace_text(path, json.dumps(baseline, indent=1))
    return path


def _obstacles(runs: Sequence[Run], baselines: Sequence[Baseline]) -> Iterator[tuple[str, str]]:
    """Each thing that speaks against a promotion: what must be accepted, and why."""
    own = [baseline for baseline in baselines if baseline.machine == runs[0].machine]
    if baselines and not own:
        yield "machine", _foreign(baselines, runs[0].machine)
    for run in runs:
        for baseline in own:
            found = baseline.compare(run.benchmarks)
            yield from ((each.outcome, f"{run.path}: {each}") for each in found if each.outcome in ACCEPTABLE)
        for name, outcome in {} if own else run.outcomes.items():
            if outcome in ACCEPTABLE:
                yield outcome, f"{run.path}: {name}: {outcome}, says the run itself"


def _check_alike(first: Run, other: Run) -> None:
    """Several runs are one baseline only where they differ in nothing but time."""
    reasons = list(differences(first.machine, other.machine))
    reasons += differences(dict.fromkeys(first.benchmarks, "there"), dict.fromkeys(other.benchmarks, "there"))
    for name in first.benchmarks.keys() & other.benchmarks.keys():
        for part in ("identity", "facts", "stack"):
            old, new = (getattr(run.benchmarks[name], part) for run in (first, other))
            reasons += [f"{name}: {line}" for line in differences(old, new)]
    if reasons:
        raise RunError(f"{first.path} and {other.path} are not runs of the same code: {'; '.join(reasons)}")


def _foreign(baselines: Sequence[Baseline], machine: Mapping[str, Any]) -> str:
    return "; ".join(
        f"{baseline.path} is of another machine: {', '.join(differences(baseline.machine, machine))}"
        for baseline in baselines
    )


def _slug(machine: Mapping[str, Any]) -> str:
    return re.sub(r"[^a-z0-9]+", "-", "-".join(str(value) for value in machine.values() if value).lower()).strip("-")
