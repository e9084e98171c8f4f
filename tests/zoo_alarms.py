"""``python -m tests.zoo_alarms SEEDS docs/adapters.md``: does the measured bound fail a trainer of the zoo?

Each trainer of `tests.healthy.zoo` starts from as many seeds, which draw its parameters and its data, on all of its
devices and, as `single_device_truth` measures it, on one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from meshproof.contract import Leaves, ReferenceTrajectory, Step, Trajectory, nest
from meshproof.files import insert, replace_text
from meshproof.measures.numerics import judge, judge_trajectory
from meshproof.observing.members import canonical
from meshproof.observing.single_device_truth import DRAWS, as_held, deviations, moved, widened
from meshproof.observing.state import host
from tests.healthy.zoo import strategies

DEVICES, STEPS = 8, 3
HELD = ("parameters", "optimizer_state")
NAME = "zoo-alarms"
IN_FLOAT32 = "multi_steps"
"""Computes in float32 whatever it is handed, so that there is no truth to measure."""


def margins(trainer: Any, seeds: int) -> Iterator[float]:
    """The worst margin of every seed."""
    alone, wide = trainer.single_device("float32"), trainer.single_device("float64")
    devices = int(np.prod(list(trainer.mesh_axes.values())))
    for seed in range(seeds):
        trainer.seed = seed
        start = host(canonical(trainer.parameters(trainer.init(jax.random.key(seed))), "parameters"))
        given = [start, *map(as_held, trainer.batches(STEPS))]
        draws = [run(alone, moved(given, draw)) for draw in range(DRAWS)]
        with jax.enable_x64(True):
            true = run(wide, widened(given))
        yield worst(run(trainer, given), ReferenceTrajectory(true, deviations(true, draws, devices)))


def run(trainer: Any, given: Sequence[Leaves]) -> Trajectory:
    """The gradients of the first batch, and one step a batch."""
    state, batches = trainer.load(nest(given[0])), [trainer.shard_batch(nest(batch)) for batch in given[1:]]
    gradients, steps = host(canonical(trainer.gradients(state, batches[0]), "gradients")), []
    for batch in map(trainer.shard_batch, map(nest, given[1:])):
        state, metrics = trainer.train_step(state, batch)
        held = {
            part: host(canonical(getattr(trainer, part)(state), part)) for part in ("parameters", "optimizer_state")
        }
        others = {name: np.asarray(value) for name, value in metrics.items() if name != "loss"}
        steps.append(Step(float(metrics["loss"]), metrics=others, **held))
    return Trajectory(gradients, tuple(steps))


def worst(seen: Trajectory, reference: ReferenceTrajectory) -> float:
    """The largest margin of all that is judged."""
    steps = zip(seen.steps, reference.value.steps, reference.rounding.steps, strict=True)
    metrics = [judge(*(of.metrics for of in step), "metrics", vacuous=np.inf) for step in steps if step[0].metrics]
    verdicts = [*judge_trajectory(seen, reference), *metrics]
    return max(verdict.margin if verdict.passed or verdict.margin > 1 else np.inf for verdict in verdicts)


def rows(seeds: int) -> Iterator[str]:
    """The table."""
    yield "| healthy trainer | seeds | failed | worst margin |"
    yield "|---|---|---|---|"
    for trainer in strategies():
        if trainer.name != IN_FLOAT32:
            found = list(margins(trainer, seeds))
            name = f"`{trainer.name}` ({trainer.framework})"
            yield f"| {name} | {seeds} | {sum(margin > 1 for margin in found)} | {max(found):.2g} |"


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", DEVICES)
    seeds, page = int(sys.argv[1]), Path(sys.argv[2])
    table = []
    for row in rows(seeds):
        print(row, flush=True)
        table.append(row)
    replace_text(page, insert(page.read_text(encoding="utf-8"), NAME, "\n".join(table)))
