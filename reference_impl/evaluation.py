"""Metrics of an evaluation set: sums and counts to the very end, so that batches and devices may have uneven shares.

A mean of means weighs the examples of a short batch, or of a device with few, more than the others.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from meshproof.contract import Batch

NO_CLASS = -1
"""The label of an example that is only there to fill the batch."""

Totals = dict[str, tuple[jax.Array, jax.Array]]
"""Each metric's sum over the examples, and their number."""


class Evaluates:
    """What a strategy that has ``totals`` of a placed batch evaluates, with the layout that it trains with."""

    batch_size: int
    shard_batch: Any
    totals: Any

    def evaluate(self, state: Any, batch: Batch) -> Totals:
        """The totals of a host batch of at most ``batch_size`` examples."""
        return self.totals(state, self.shard_batch(padded(batch, self.batch_size)))  # type: ignore[no-any-return]


def padded(batch: Batch, size: int) -> dict[str, np.ndarray]:
    """The batch filled up to ``size`` examples: zeros for inputs, `NO_CLASS` for labels, false for a mask.

    Raises ``ValueError`` where it has more.
    """
    missing = size - len(batch["y"])
    if missing < 0:
        raise ValueError(f"a batch of {len(batch['y'])} examples does not fit into one of {size}")
    filling = {"x": 0, "y": NO_CLASS, "mask": False}
    return {
        name: np.pad(value, [(0, missing)] + [(0, 0)] * (value.ndim - 1), constant_values=filling[name])
        for name, value in batch.items()
    }


def totals(logits_BxC: jax.Array, batch: Batch) -> Totals:
    """The cross-entropy ``loss`` and the ``correct`` predictions, over the examples that have a class, and that a mask
    has not padded."""
    labels_B = jnp.where(batch["mask"], batch["y"], NO_CLASS) if "mask" in batch else batch["y"]
    counts_B = labels_B != NO_CLASS
    losses_B = optax.softmax_cross_entropy_with_integer_labels(logits_BxC, labels_B)
    right_B = logits_BxC.argmax(-1) == labels_B
    number = counts_B.sum()
    return {"loss": (jnp.where(counts_B, losses_B, 0).sum(), number), "correct": (right_B.sum(), number)}
