"""Gradient accumulation: a batch in k parts, one after another, so that only one part's activations are ever held.

The gradients are the mean over the parts, each weighted by how many examples its own mean is over: with masks the
parts are not equal, and a mean of means would train on something else.

Where this stands decides what it costs. By hand a device differentiates its own examples' loss, and the one reduction
comes after the loop. Handed to the compiler, the loss is the global microbatch's, whose gradients are reduced inside
the loop: k times the bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from meshproof.contract import Batch, Tree
from reference_impl.modifiers import Modified


@dataclass(frozen=True)
class Accumulated(Modified):
    """A model whose gradients are accumulated over ``microbatches`` parts of the batch."""

    microbatches: int = 4

    @property
    def promises(self) -> dict[str, Any]:
        """The model's, and the number of microbatches."""
        return self.model.promises | {"microbatches": self.microbatches}

    def value_and_grad(self, loss: Callable[..., jax.Array]) -> Callable[..., tuple[jax.Array, Tree]]:
        """The mean loss and gradients of ``(parameters, batch, *rest)``, accumulated in a loop."""
        differentiate = self.model.value_and_grad(loss)

        def accumulated(parameters: Tree, batch: Batch, *rest: Any) -> tuple[jax.Array, Tree]:
            examples = jnp.maximum(self.count(batch), 1)
            parts = split(batch, self.microbatches)

            def share(part: Batch) -> Any:
                weight = self.count(part) / examples
                return jax.tree.map(lambda mean: mean * weight, differentiate(parameters, part, *rest))

            def add(mean: Any, part: Batch) -> tuple[Any, None]:
                return jax.tree.map(jnp.add, mean, share(part)), None

            first = {name: field[0] for name, field in parts.items()}
            nothing = jax.tree.map(jnp.zeros_like, jax.eval_shape(share, first))
            return jax.lax.scan(add, nothing, parts)[0]

        return accumulated


def split(batch: Batch, parts: int) -> dict[str, jax.Array]:
    """Every field (B, …) as (k, B/k, …). Raises ``ValueError`` where B does not divide.

    Part i has every k-th example from the i-th on: whatever devices split B contiguously, each splits its own examples,
    and none moves. Consecutive examples would move almost all of them.
    """
    for name, field in batch.items():
        if len(field) % parts:
            raise ValueError(f"batch field {name!r} of {len(field)} examples is not divisible by {parts} microbatches")
    return {name: field.reshape(-1, parts, *field.shape[1:]).swapaxes(0, 1) for name, field in batch.items()}
