"""Rows that a mesh deals to microbatches device by device, and one device does not.

Where each device makes microbatches of its own rows, as ``reshape(devices, microbatches, …)`` does, a microbatch has
other rows than on one device, which cuts the whole batch. Masks that are drawn by the same keys then fall on other
rows. Handed the rows in the mesh's order, one device draws for each what the mesh does.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from meshproof.observing.probes import place


class Dealt:
    """A trainer on one device that takes of each batch first the rows that are first on each of ``shards`` devices."""

    def __init__(self, trainer: Any, shards: int, microbatches: int) -> None:
        self.trainer, self.shards, self.microbatches = trainer, shards, microbatches

    def __getattr__(self, name: str) -> Any:
        return getattr(self.trainer, name)

    def shard_batch(self, batch: Any) -> Any:
        """The batch in that order, as the trainer takes it."""
        return place(self.trainer, jax.tree.map(self.dealt, batch))

    def dealt(self, field: Any) -> np.ndarray:
        """One field. Rows that cannot be dealt evenly stay where they are."""
        rows = np.asarray(field)
        if len(rows) % (self.shards * self.microbatches):
            return rows
        return rows.reshape(self.shards, self.microbatches, -1, *rows.shape[1:]).swapaxes(0, 1).reshape(rows.shape)
