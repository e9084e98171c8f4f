"""The data of pictures: train steps of saved benchmarks, conformance reports, and plans."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import quantiles
from typing import Any

from meshproof.planning.document import Planned
from meshproof.plots.saved_plans import read_plan
from meshproof.report.document import describe_stack, read_report
from meshproof.timing.runs import NAME, Benchmark, RunError, read_json, read_run

TEST = "test_step_time"
"""The test whose benchmarks are train steps; other benchmarks are not drawn."""

COUNTED = re.compile(r"(batch|microbatches)\d+")
"""The part of a variant that only repeats the batch size or the microbatches."""

EXPECTED = (
    "expected what `pytest benchmarks/ --benchmark-json FILE` or `pytest suites/ --conformance-report FILE` writes, or "
    "`meshproof plan … --json` prints"
)

PIPELINE = ("stages", "microbatches", "chunks")
"""The keys that describe a pipeline."""


class PlotError(ValueError):
    """Nothing can be drawn; the message says why, and what to do."""


@dataclass(frozen=True, eq=False)
class Step:
    """One timed train step; ``seconds`` are the quartiles of its time over the rounds: lower, median, upper."""

    run: str
    name: str
    identity: Mapping[str, Any]
    stack: Mapping[str, Any]
    seconds: tuple[float, float, float]
    mfu: float | None

    @property
    def strategy(self) -> str:
        """Its strategy's name."""
        return str(self.identity["strategy"])

    @property
    def batch(self) -> int | None:
        """Examples of a global batch; ``None`` if unknown."""
        return self.identity.get("batch_size")

    @cached_property
    def devices(self) -> int:
        """How many devices its mesh has."""
        return math.prod(self.identity["mesh"].values())

    @cached_property
    def mesh(self) -> str:
        """Its mesh, as in ``data=2, model=4``."""
        return ", ".join(f"{axis}={size}" for axis, size in self.identity["mesh"].items())

    def known(self) -> dict[str, Any]:
        """Run, stack and identity; the variant without what other keys say."""
        parts = str(self.identity.get("variant") or "").split("_")
        variant = "_".join(part for part in parts if not COUNTED.fullmatch(part))
        return {"run": self.run, **self.identity, "variant": variant, "stack": self.stack}

    def key(self, *but: str) -> str:
        """Equal for steps that differ only in these keys."""
        return json.dumps({name: value for name, value in self.known().items() if name not in but}, sort_keys=True)


@dataclass
class Material:
    """All that was read, and remarks on what is left out."""

    steps: list[Step] = field(default_factory=list)
    reports: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    plans: list[tuple[str, Planned]] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    sources: dict[str, str] = field(default_factory=dict)

    @property
    def is_planned_alone(self) -> bool:
        """Whether there are plans and nothing that was seen or timed."""
        return bool(self.plans) and not (self.steps or self.reports)


def read_files(paths: Sequence[Path]) -> Material:
    """Runs of benchmarks, conformance reports and plans, told apart by what is in them.

    Raises `PlotError` for any other file and for two of one name, `RunError` and `ReportError` for damaged ones.
    """
    material = Material()
    for path in paths:
        if path.stem in material.sources:
            raise PlotError(f"two files are called {path.stem}: a picture could not tell them apart; rename one")
        try:
            raw = read_json(path)
        except RunError as error:
            raise PlotError(f"{error}; {EXPECTED}") from error
        known = raw if isinstance(raw, dict) else {}
        if isinstance(known.get("benchmarks"), list):
            _add_run(material, path)
        elif {"schema", "cases"} <= known.keys():
            report = read_report(path)
            material.reports.append((path.stem, report))
            material.sources[path.stem] = describe_stack(report["environment"])
        elif {"model", "hardware", "strategies"} <= known.keys():
            _add_plan(material, path, known)
        else:
            raise PlotError(f"{path} is no run of benchmarks, no conformance report and no plan; {EXPECTED}")
    return material


def _add_plan(material: Material, path: Path, told: Mapping[str, Any]) -> None:
    try:
        planned = read_plan(told)
    except ValueError as error:
        raise PlotError(f"{path}: {error}; `meshproof plan … --json` makes it again") from error
    material.plans.append((path.stem, planned))
    material.sources[path.stem] = f"a plan for {planned.question.chips:,} × {planned.question.chip.name}"


def _add_run(material: Material, path: Path) -> None:
    run = read_run(path)
    if not isinstance(run.raw.get(NAME), dict):
        told = "nothing tells whether its tests passed; time it again with `pytest benchmarks/ --benchmark-json FILE`"
        raise PlotError(f"{path} was saved without meshproof's plugin: {told}")
    problems = run.problems
    if "the run" in problems:
        material.remarks.append(f"{path}: the run {problems['the run']}: what it did not reach is not drawn")
    named = {name: each for name, each in run.benchmarks.items() if name.rpartition("::")[2].startswith(f"{TEST}[")}
    failed = sorted(named.keys() & problems.keys())
    material.remarks += [f"{path}: {name} is not drawn: it {problems[name]}" for name in failed]
    steps = [_parse(path, each) for name, each in named.items() if name not in problems]
    if not steps:
        material.remarks.append(f"{path} has no train step: expected benchmarks of {TEST}, saved by tests that passed")
        return
    material.steps += steps
    material.sources[path.stem] = "; ".join(dict.fromkeys(map(_describe, steps)))


def _describe(step: Step) -> str:
    machine, versions = step.identity, (f"{name} {step.stack[name]}" for name in ("jax", "flax") if name in step.stack)
    host = f" of {machine['host']}" if machine["host"] else ""
    return f"{machine['devices']} × {machine['device_kind']}{host}, {', '.join(versions)}"


def _parse(path: Path, benchmark: Benchmark) -> Step:
    problem = next(_flaws(benchmark), None)
    if problem:
        raise PlotError(f"{path}: {benchmark.name}: {problem}; time it again with `pytest benchmarks/`")
    steps = benchmark.identity["steps_per_window"]
    low, middle, high = quantiles([seconds / steps for seconds in benchmark.sample.seconds], n=4)
    mfu = benchmark.measured.get("mfu")
    return Step(path.stem, benchmark.name, benchmark.identity, benchmark.stack, (low, middle, high), mfu)


def _flaws(benchmark: Benchmark) -> Iterator[str]:
    """Reasons why a benchmark cannot be drawn."""
    identity, seconds = benchmark.identity, benchmark.sample.seconds
    if not _is_number(identity.get("steps_per_window")):
        yield f"steps_per_window is {identity.get('steps_per_window')!r}; expected a number from 1 on"
    if not isinstance(identity.get("strategy"), str):
        yield f"strategy is {identity.get('strategy')!r}; expected a name"
    mesh = identity.get("mesh")
    if not isinstance(mesh, dict) or not mesh or not all(map(_is_number, mesh.values())):
        yield f"mesh is {mesh!r}; expected sizes by axis, as in {{'data': 8}}"
    counts = identity.get("pipeline")
    if counts is not None and not (isinstance(counts, dict) and all(_is_number(counts.get(part)) for part in PIPELINE)):
        yield f"pipeline is {counts!r}; expected the numbers of {', '.join(PIPELINE)}, or null"
    if identity.get("batch_size") is not None and not _is_number(identity["batch_size"]):
        yield f"batch_size is {identity['batch_size']!r}; expected a number of examples, or null"
    if len(seconds) < 2:
        yield f"its rounds are {list(seconds)}; expected two or more"
    mfu = benchmark.measured.get("mfu")
    if mfu is not None and not _is_number(mfu):
        yield f"mfu is {mfu!r}; expected a positive number, or null"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= sys.float_info.max
