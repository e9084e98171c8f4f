"""Rows that a mesh deals to microbatches device by device, and one device does not.

Where each device makes microbatches of its own rows, as ``reshape(devices, microbatches, …)`` does, a microbatch has
other rows than on one device, which cuts the whole batch. Masks that are drawn by the same keys then fall on other
rows. Handed the rows in the mesh's order, one device draws for each what the mesh does.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from meshproof.observing.members import loss_of, state_and_metrics
from meshproof.observing.moved_rows import SWAPPED, row_dimension, rows_by_shard
from meshproof.observing.probes import place
from meshproof.observing.seen import NotSupported
from meshproof.observing.subject import Subject

if TYPE_CHECKING:
    from meshproof.observing.single_device_truth import OneDevice


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


def dealt_alike(subject: Subject, one: OneDevice) -> OneDevice:
    """One device that takes its rows as the mesh deals them to microbatches, if the first loss tells that it does."""
    rows = rows_by_shard(subject)
    if isinstance(rows, NotSupported) or row_dimension(subject):
        return one
    seen = loss_of(state_and_metrics(subject.strategy.train_step(subject.fresh(), subject.batches[0]))[1])
    for parts in range(1, rows.shape[1] + 1):
        if rows.shape[1] % parts == 0:
            other = copy(one)
            other.trainer = Dealt(one.trainer, len(rows), parts) if parts > 1 else one.trainer
            if abs(other.first_step(other.state()).loss - seen) <= SWAPPED * abs(seen):
                return other
    return one
