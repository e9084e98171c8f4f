"""Evaluation of trainers that bring no truth but their own run on one device."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from tests.healthy.idioms import Trainer
from tests.healthy.kept import Averages
from tests.saboteurs.planting import plant_stranger


class Evaluates(Trainer):
    """Sums over the rows of a host batch of any size, padded to the usual one."""

    name = "healthy_evaluates"

    def evaluated(self, state: Any) -> Any:
        """The parameters."""
        return state["parameters"]

    def evaluate(self, state: Any, batch: Any) -> Any:
        """Sums and counts."""
        rows = len(batch["x"])
        padded = {name: np.concatenate([f, np.zeros((64 - rows, *f.shape[1:]))]) for name, f in batch.items()}
        return self.totals(self.evaluated(state), self.shard_batch(padded | {"counts": np.arange(64) < rows}))

    def totals(self, w: Any, batch: Any) -> Any:
        """Of the rows that count."""
        rows = jnp.mean((jnp.tanh(batch["x"] @ w["hidden"]) @ w["out"] - batch["y"]) ** 2, axis=-1)
        return {"loss": (jnp.sum(rows * batch["counts"]), jnp.sum(batch["counts"]))}


class EvaluatesByTheDevice(Evaluates):
    """A mean of the devices' means, times the count."""

    name = "evaluates_by_the_device"

    def totals(self, w: Any, batch: Any) -> Any:
        """A device without rows counts as much as one that is full."""
        rows = jnp.mean((jnp.tanh(batch["x"] @ w["hidden"]) @ w["out"] - batch["y"]) ** 2, axis=-1)
        by_device = self.mesh_axes["data"], -1
        sums, counts = (jnp.sum(each.reshape(by_device), 1) for each in (rows * batch["counts"], batch["counts"]))
        return {"loss": (jnp.mean(sums / jnp.maximum(counts, 1)) * jnp.sum(counts), jnp.sum(counts))}


class EvaluatesAverages(Averages, Evaluates):
    """By the average that it keeps, which no parameters tell."""

    name = "healthy_evaluates_averages"

    def evaluated(self, state: Any) -> Any:
        """The average."""
        return state["average"]


class EvaluatesAveragesAlone(EvaluatesAverages):
    """On one device only."""

    name = "evaluates_averages_alone"

    def evaluated(self, state: Any) -> Any:
        """On more, the parameters."""
        return state["average" if self.mesh_axes["data"] == 1 else "parameters"]


plant_stranger(Evaluates())
plant_stranger(EvaluatesByTheDevice(), "MSK-1")
plant_stranger(EvaluatesAverages())
plant_stranger(EvaluatesAveragesAlone(), "MSK-1")
