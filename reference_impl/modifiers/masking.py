"""Batches of variable size: padded to one shape, with a mask that says which examples count.

A device may have many valid examples and its neighbour none. What is averaged is therefore the sum of the losses and
the count of the examples, each over all devices, and the one divided by the other at the very end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from reference_impl.mapping import Axes
from reference_impl.modifiers import Modified
from reference_impl.truth import MaskedTruth, Optimizer


@dataclass(frozen=True)
class Masked(Modified):
    """A model whose batches have a field ``mask`` (B,) of truth values: padding is computed and counts for nothing.

    Raises ``ValueError`` on a model that accumulates: it would weigh its parts by examples that do not count.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if parts := self.model.promises.get("microbatches"):
            raise ValueError(f"the model accumulates {parts} microbatches: mask it first, Accumulated(Masked(model))")

    @property
    def batch_axes(self) -> dict[str, Axes]:
        """The model's, and the mask."""
        return self.model.batch_axes | {"mask": ("batch",)}

    @property
    def promises(self) -> dict[str, Any]:
        """The model's, and the name of the mask."""
        return self.model.promises | {"mask": "mask"}

    def truth(self, optimizer: Optimizer) -> MaskedTruth:
        """The truth of the model on the valid examples alone."""
        return MaskedTruth(self.model.truth(optimizer))

    def loss_of(self, outputs: jax.Array, batch: Mapping[str, Any]) -> jax.Array:
        """The mean over the valid examples that this program sees; 0 where there are none."""
        loss_B = jax.vmap(self.loss_of_one)(outputs, batch["y"])
        return jnp.where(batch["mask"], loss_B, 0).sum() / jnp.maximum(self.count(batch), 1)

    def loss_of_one(self, output: jax.Array, label: jax.Array) -> jax.Array:
        """The loss of one example: the mean loss of a batch that has no other."""
        return self.mean_loss(output[None], label[None])

    def count(self, batch: Mapping[str, Any]) -> jax.Array:
        """How many examples are valid."""
        return batch["mask"].sum(dtype=jnp.float32)
