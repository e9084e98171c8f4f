"""Runs of benchmarks as they were saved: pytest-benchmark's JSON, with the rounds and what was measured beside them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

from meshproof.report.schemas import flaw, parse_json
from meshproof.timing.ratios import THRESHOLD, Sample

NAME = "meshproof"
"""Meshproof's key in the JSON of a run."""

MACHINE = ("platform", "device_kind", "devices", "host")
"""The keys of a benchmark's identity that describe the machine."""

BASELINE = (*MACHINE, "size")
"""The keys that choose a baseline: the machine, and the size of the models if it is given."""

IDENTITY = (*MACHINE, "dtype", "model")
"""Keys that every benchmark's identity must have: without them, different things would be compared."""


class RunError(ValueError):
    """A file of times that cannot be used; the message says why, and what to do."""


@dataclass(frozen=True)
class Benchmark:
    """One benchmark of one run: its identity, its deterministic facts, and the seconds of its rounds."""

    name: str
    identity: Mapping[str, Any]
    facts: Mapping[str, Any]
    stack: Mapping[str, Any]
    sample: Sample
    measured: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def machine(self) -> dict[str, Any]:
        """The machine that it was timed on, and the size."""
        return {key: self.identity[key] for key in BASELINE if key in self.identity}

    @property
    def device_seconds(self) -> float | None:
        """For how long the busiest device was busy in a call, as a trace of one window says; ``None`` is unknown."""
        return self.measured.get("device_seconds")

    @property
    def busy(self) -> float | None:
        """The share of the time in which it was busy."""
        calls, whole = self.identity.get("steps_per_window", 1), median(self.sample.seconds)
        return None if self.device_seconds is None else self.device_seconds * calls / whole

    @property
    def device_bound(self) -> bool:
        """Whether a device was busy for all but `THRESHOLD` of the time: then a slow host does not matter."""
        return self.busy is not None and self.busy >= 1 - THRESHOLD

    @classmethod
    def parse(cls, entry: Mapping[str, Any]) -> Benchmark:
        """Parse pytest-benchmark's entry. Raises `RunError` if something is missing."""
        name, info = entry.get("fullname", "a benchmark without a name"), entry.get("extra_info", {})
        for key in ("identity", "facts", "stack", "witnesses"):
            if not isinstance(info.get(key), dict):
                raise RunError(f"{name} has no {key}; time it with meshproof's plugin and `extra_info[{key!r}]`")
        if not info["witnesses"]:
            raise RunError(f"{name} has no witnesses; time it with benchmark.pedantic, whose rounds have their setup")
        if silent := [key for key in IDENTITY if key not in info["identity"]]:
            raise RunError(f"{name} does not say its {', '.join(silent)}; add it to `extra_info['identity']`")
        if "data" not in entry["stats"]:
            raise RunError(f"{name} was saved without its rounds; add --benchmark-save-data")
        sample, measured = Sample(entry["stats"]["data"], info["witnesses"]), info.get("measured") or {}
        busy = measured.get("device_seconds")
        if busy is not None and not (type(busy) in (int, float) and 0 < busy < math.inf):
            raise RunError(f"{name} has device_seconds {busy!r}: expected seconds above 0, or null where none is known")
        return cls(name, info["identity"], info["facts"], info["stack"], sample, measured)


@dataclass(frozen=True)
class Run:
    """All benchmarks of a run by name, and its JSON data."""

    path: Path
    benchmarks: Mapping[str, Benchmark]
    raw: Mapping[str, Any] = field(repr=False)

    @property
    def problems(self) -> dict[str, str]:
        """What failed, by test or ``the run``; empty if nothing did."""
        if not self.raw.get(NAME):
            return {"the run": "was saved without meshproof's plugin; nothing tells whether its tests passed"}
        return dict(self.raw[NAME]["problems"])

    @property
    def outcomes(self) -> dict[str, str]:
        """The outcomes of the comparison during the run, by benchmark; empty if there was none."""
        compared = (self.raw.get(NAME) or {}).get("compared")
        return dict(compared["outcomes"]) if compared else {}

    @property
    def machine(self) -> dict[str, Any]:
        """The machine that it was timed on. Raises `RunError` if its benchmarks disagree."""
        machines = {json.dumps(benchmark.machine): benchmark for benchmark in self.benchmarks.values()}
        if len(machines) != 1:
            several = "; ".join(machines) or "it has no benchmark"
            raise RunError(f"{self.path} is of {len(machines)} machines or sizes: {several}")
        return next(iter(machines.values())).machine


def read_run(path: Path) -> Run:
    """The run in a file. Raises `RunError` if it is no run, or not a whole one."""
    raw = read_json(path)
    if not isinstance(raw, dict) or not isinstance(raw.get("benchmarks"), list):
        raise RunError(f"{path} is no run: expected what `--benchmark-save` or `--benchmark-json` writes")
    return parse_run(raw, path)


def parse_run(raw: Mapping[str, Any], path: Path) -> Run:
    """A run from its JSON data; ``path`` is for messages. Raises `RunError`."""
    if odd := flaw(raw, "run"):
        raise RunError(f"{path} is no run: {odd}")
    try:
        benchmarks = [Benchmark.parse(entry) for entry in raw["benchmarks"]]
    except RunError as error:
        raise RunError(f"{path}: {error}") from error
    return Run(path, {benchmark.name: benchmark for benchmark in benchmarks}, raw)


def read_json(path: Path) -> Any:
    """The JSON data in a file. Raises `RunError` if it cannot be read or was cut off."""
    try:
        return parse_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise RunError(f"cannot read {path}: {reason}") from error
    except (ValueError, RecursionError) as error:
        raise RunError(f"{path} is no JSON, or cut off: {error}") from error
