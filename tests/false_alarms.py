"""``python -m tests.false_alarms SEEDS docs/adapters.md``: how often the measured bound fails a healthy trainer.

Each of the kinds of `tests.healthy.kinds` trains from as many seeds on 8 devices, and is judged by its own run on one,
as `single_device_truth` measures it. Beside the worst margin that was seen stand the least with which two small faults
still fail.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp

from meshproof.cases import Case
from meshproof.contract import ReferenceTrajectory, Step, Trajectory
from meshproof.files import insert, replace_text
from meshproof.measures.trajectories import judge_trajectory
from meshproof.observing.rounding import as_held
from meshproof.observing.single_device_truth import DRAWS, OneDevice
from meshproof.observing.state import host
from tests.healthy.kinds import KINDS, Kind, Trainer

DEVICES, STEPS = 8, 3
NAME = "false-alarms"


def too_long(gradients: Any) -> Any:
    """By a ten-thousandth."""
    return jax.tree.map(lambda g: g * (1 + 1e-4), gradients)


def in_bfloat16(gradients: Any) -> Any:
    """As a reduction in bfloat16 rounds them."""
    return jax.tree.map(lambda g: g.astype(jnp.bfloat16).astype(g.dtype), gradients)


@dataclass
class Found:
    """Of one kind: the margin of every seed, and with a fault planted in it."""

    healthy: list[float] = field(default_factory=list)
    scaled: list[float] = field(default_factory=list)
    rounded: list[float] = field(default_factory=list)


def margins(kind: Kind, seeds: int, faults: int) -> Found:
    """The worst margin of all that is judged, by seed; of the first ``faults`` seeds with each fault, too."""
    found = Found()
    for seed in range(seeds):
        given = [as_held(kind.start(seed)), *map(as_held, kind.batches(seed, STEPS))]
        reference = measured(kind, given)
        found.healthy.append(worst(Trainer(kind, DEVICES), given, reference))
        if seed < faults:
            found.scaled.append(worst(Trainer(kind, DEVICES, harm=too_long), given, reference))
            found.rounded.append(worst(Trainer(kind, DEVICES, harm=in_bfloat16), given, reference))
    return found


def measured(kind: Kind, given: list[Any]) -> ReferenceTrajectory:
    """What `OneDevice.reference` makes of a kind."""
    strategy: Any = SimpleNamespace(single_device=lambda dtype: Trainer(kind, 1))
    one = OneDevice(Case(kind.name, strategy, {"data": DEVICES}, "cpu"), Trainer(kind, 1), True, given[0], given[1:])
    return one.reference(one.training, DRAWS)


def worst(trainer: Trainer, given: list[Any], reference: ReferenceTrajectory) -> float:
    """The largest margin of a run on all devices."""
    return max(verdict.margin for verdict in judge_trajectory(distributed(trainer, given), reference))


def distributed(trainer: Trainer, given: list[Any]) -> Trajectory:
    """A run on all devices."""
    state, batches = trainer.load(given[0]), [trainer.shard_batch(batch) for batch in given[1:]]
    gradients, steps = host(trainer.gradients(state, batches[0])), []
    for batch in batches:
        state, metrics = trainer.train_step(state, batch)
        steps.append(
            Step(float(metrics["loss"]), host(trainer.parameters(state)), host(trainer.optimizer_state(state)))
        )
    return Trajectory(gradients, tuple(steps))


def rows(seeds: int, faults: int = 20) -> Iterator[str]:
    """The table."""
    yield "| healthy trainer | seeds | failed | worst margin | gradient × (1 + 1e-4) | gradient in bfloat16 |"
    yield "|---|---|---|---|---|---|"
    for kind in KINDS:
        found = margins(kind, seeds, faults)
        failed = sum(margin > 1 for margin in found.healthy)
        least = (f"{min(each):.3g}" for each in (found.scaled, found.rounded))
        yield f"| `{kind.name}` | {seeds:,} | {failed} | {max(found.healthy):.2g} | {' | '.join(least)} |"


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", DEVICES)
    seeds, page = int(sys.argv[1]), Path(sys.argv[2])
    table = []
    for row in rows(seeds):
        print(row, flush=True)
        table.append(row)
    replace_text(page, insert(page.read_text(encoding="utf-8"), NAME, "\n".join(table)))
