"""``python -m tests.zoo_alarms SEEDS docs/adapters.md [NAME...]``: does the measured bound fail a trainer of the zoo?

All are asked, or those that are named, about a minute each for 30 seeds; a row is written as soon as it is known.

Each trainer of `tests.healthy.zoo` starts from as many seeds, which draw its parameters and its data, on all of its
devices and, as `single_device_truth` measures it, on one: in training, and in every probe of NUM-13.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cache
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np

from meshproof.cases import Case
from meshproof.contract import ReferenceTrajectory, Trajectory
from meshproof.files import insert, replace_text
from meshproof.measures.numerics import VACUOUS_IN, judge, pair, within
from meshproof.measures.trajectories import judge_trajectory
from meshproof.measures.verdicts import Verdict
from meshproof.observing.members import canonical
from meshproof.observing.probes import probes, run
from meshproof.observing.single_device_truth import DRAWS, PROBE_DRAWS, PROBE_WIDTH, OneDevice
from meshproof.observing.state import host
from suites.metrics import comparable
from suites.test_later_steps_equal_those_of_one_device import parts, settled
from tests.healthy.zoo import strategies

DEVICES, STEPS = 8, 3
NAME = "zoo-alarms"


def margins(trainer: Any, seeds: int) -> Iterator[tuple[float, float]]:
    """Of every seed the worst margin in training, and in all probes."""
    alone = SimpleNamespace(single_device=cache(trainer.single_device), contract=trainer.contract)
    case: Any = Case("zoo", alone, dict(trainer.mesh_axes), "cpu")
    for seed in range(seeds):
        trainer.seed = seed
        start = trainer.init(jax.random.key(seed))
        parameters, batches = host(canonical(trainer.parameters(start), "parameters")), list(trainer.batches(STEPS))
        one = OneDevice(case, alone.single_device("float32"), True, parameters, batches)
        first = trainer.gradients(
            trainer.load(canonical(trainer.parameters(start), "")), trainer.shard_batch(batches[0])
        )
        seen = Trajectory(host(canonical(first, "gradients")), run(trainer, one.training)[0])
        later = (
            verdict
            for probe in probes(case, one.training.parameters, one.training.batches, start)
            for verdict in probed(run(trainer, probe)[0], one.reference(probe, PROBE_DRAWS, PROBE_WIDTH))
        )
        vacuous = VACUOUS_IN[trainer.contract.compute_dtype]
        yield worst(trained(seen, one.reference(one.training, DRAWS), vacuous)), worst(later)


def trained(seen: Trajectory, reference: ReferenceTrajectory, vacuous: float) -> Iterator[Verdict]:
    """Everything of a training that a clause judges."""
    yield from judge_trajectory(seen, reference, vacuous)
    for step in zip(seen.steps, reference.value.steps, reference.rounding.steps, strict=True):
        *metrics, _ = comparable(*(of.metrics for of in step))
        if metrics[0]:
            yield judge(*metrics, "metrics", vacuous=inf)


def probed(seen: Any, reference: ReferenceTrajectory) -> Iterator[Verdict]:
    """As NUM-13 judges a probe."""
    for step in zip(seen, reference.value.steps, reference.rounding.steps, strict=True):
        for part, held in parts(*step):
            one, other, allowed = settled(*held)
            yield pair(one, other, other, part, ("the run", "one device"), within(allowed, "one device", inf))


def worst(verdicts: Iterator[Verdict]) -> float:
    """The largest margin; infinite where a verdict failed for another reason."""
    return max(verdict.margin if verdict.passed or verdict.margin > 1 else inf for verdict in verdicts)


HEAD = "| healthy trainer | seeds | failed | worst margin | of later steps |\n|---|---|---|---|---|"


def label(trainer: Any) -> str:
    """What its row begins with."""
    return f"| `{trainer.name}` ({trainer.framework}) |"


def row(trainer: Any, seeds: int) -> str:
    """Of the table."""
    found = np.array(list(margins(trainer, seeds)))
    failed, (usual, later) = int((found > 1).any(axis=1).sum()), found.max(axis=0)
    return f"{label(trainer)} {seeds} | {failed} | {usual:.2g} | {later:.2g} |"


def keep_programs(folder: str) -> None:
    """A trainer that calls ``jax.jit`` anew compiles once, and not once for each seed."""
    jax.config.update("jax_compilation_cache_dir", folder)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def put(page: Path, new: str, zoo: list[Any]) -> None:
    """The row into the page's table, in place of an older one; rows of trainers that are no longer there go."""
    text = page.read_text(encoding="utf-8")
    lines = [*text.splitlines(), new]
    latest = {start: line for line in lines for start in map(label, zoo) if line.startswith(start)}
    table = "\n".join([HEAD, *(latest[start] for start in map(label, zoo) if start in latest)])
    replace_text(page, insert(text, NAME, table))


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", DEVICES)
    seeds, page, asked = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
    zoo = strategies()
    if unknown := {*asked} - {trainer.name for trainer in zoo}:
        sys.exit(f"tests.zoo_alarms: no trainer is called {', '.join(sorted(unknown))}: see tests/healthy/")
    with TemporaryDirectory(prefix="meshproof-") as folder:
        keep_programs(folder)
        for trainer in zoo:
            if not asked or trainer.name in asked:
                put(page, row(trainer, seeds), zoo)
