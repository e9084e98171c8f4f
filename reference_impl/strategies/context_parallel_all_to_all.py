"""Context parallel by hand (DeepSpeed-Ulysses): for attention each device trades its part of the sequence for heads.

    parameters       position→context
    gradients        position→context
    optimizer state  position→context
    batch            batch→data, length→context
    forward moves    all-to-all of activations over context; all-reduce of metrics over data×context
    step moves       all-to-all of activations over context; all-reduce of gradients over data;
                     all-reduce of gradients over data×context; all-reduce of metrics over data×context

``context_parallel``, but for attention: an all-to-all of queries, keys and values gives a device its own heads of all
tokens instead of all heads of its own tokens; another one, of attention's output, goes back. The n devices must divide
the heads; each sends 2/n of what it would on a ring (Jacobs et al. 2023, "DeepSpeed Ulysses: System
Optimizations for Enabling Training of Extreme Long Sequence Transformer Models").
"""

from __future__ import annotations

from dataclasses import replace

import jax
from jax.lax import all_to_all, axis_size

from meshproof.contract import Batch, Tree
from reference_impl.models import Model
from reference_impl.models.layout import Layout
from reference_impl.page import Budget, all_reduce
from reference_impl.page import all_to_all as trade
from reference_impl.strategies import context_parallel
from reference_impl.strategies.context_parallel import BOTH, METRICS

TOKENS_FOR_HEADS = trade("activations", over="context")

TABLE = replace(
    context_parallel.TABLE,
    name="context_parallel_all_to_all",
    communication=Budget(
        forward=[TOKENS_FOR_HEADS, METRICS],
        step=[TOKENS_FOR_HEADS, all_reduce("gradients", over="data"), all_reduce("gradients", over=BOTH), METRICS],
    ),
)


class Heads(Layout):
    """Each device has its own part of the sequence, but in attention its own heads."""

    def attend(self, q_BxTxHxK: jax.Array, k_BxSxHxK: jax.Array, v_BxSxHxK: jax.Array) -> jax.Array:
        """Over the whole sequence. Raises ``ValueError`` where the heads do not divide."""
        heads, devices = q_BxTxHxK.shape[2], axis_size("context")
        if heads % devices:
            raise ValueError(
                f"{heads} heads do not divide among context={devices}: choose context so that it divides the heads, or "
                f"context_parallel, whose ring does not split them"
            )
        parts = (q_BxTxHxK, k_BxSxHxK, v_BxSxHxK)
        own_heads = (all_to_all(part, "context", split_axis=2, concat_axis=1, tiled=True) for part in parts)
        return all_to_all(super().attend(*own_heads), "context", split_axis=1, concat_axis=2, tiled=True)


def loss(model: Model, parameters: Tree, batch: Batch) -> jax.Array:
    """The mean of the devices' mean losses of their own tokens."""
    return context_parallel.loss(model, parameters, batch, Heads())


def loss_and_gradients(model: Model, parameters: Tree, batch: Batch) -> tuple[jax.Array, Tree]:
    """Every device's own loss and gradients; the gradients are averaged over those that share a parameter."""
    return context_parallel.loss_and_gradients(model, parameters, batch, Heads())


PAGE = TABLE.by_hand(loss, loss_and_gradients)
