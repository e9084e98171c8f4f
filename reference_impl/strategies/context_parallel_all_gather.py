"""Context parallel by hand (all-gather): the sequence is split; for attention each device gathers keys and values.

    parameters       position→context
    gradients        position→context
    optimizer state  position→context
    batch            batch→data, length→context
    forward moves    all-gather of activations over context; all-reduce of metrics over data×context
    step moves       all-gather of activations over context; reduce-scatter of activations over context;
                     all-reduce of gradients over data; all-reduce of gradients over data×context;
                     all-reduce of metrics over data×context

``context_parallel``, but for attention: a device gathers all keys and values at once, and the sum of their gradients is
reduce-scattered. As many bytes as the ring sends, without its hops; but a device holds the keys and values of the whole
sequence, and its queries' scores for all of them (Llama Team 2024, "The Llama 3 Herd of Models", 3.3.2).
"""

from __future__ import annotations

from dataclasses import replace

import jax

from meshproof.contract import Batch, Tree
from reference_impl.models import Model
from reference_impl.models.attention import gathered_attention
from reference_impl.models.layout import Layout
from reference_impl.page import Budget, all_gather, all_reduce, reduce_scatter
from reference_impl.strategies import context_parallel
from reference_impl.strategies.context_parallel import BOTH, METRICS

KEYS_AND_VALUES = all_gather("activations", over="context")
THEIR_GRADIENTS = reduce_scatter("activations", over="context")

TABLE = replace(
    context_parallel.TABLE,
    name="context_parallel_all_gather",
    communication=Budget(
        forward=[KEYS_AND_VALUES, METRICS],
        step=[
            KEYS_AND_VALUES,
            THEIR_GRADIENTS,
            all_reduce("gradients", over="data"),
            all_reduce("gradients", over=BOTH),
            METRICS,
        ],
    ),
)


class Gathered(Layout):
    """Each device has its own part of the sequence; its queries see the others' keys, which it gathers."""

    def attend(self, q_BxTxHxK: jax.Array, k_BxSxHxK: jax.Array, v_BxSxHxK: jax.Array) -> jax.Array:
        """This device's queries, with all keys at once."""
        return gathered_attention(q_BxTxHxK, k_BxSxHxK, v_BxSxHxK, over="context")


def loss(model: Model, parameters: Tree, batch: Batch) -> jax.Array:
    """The mean of the devices' mean losses of their own tokens."""
    return context_parallel.loss(model, parameters, batch, Gathered())


def loss_and_gradients(model: Model, parameters: Tree, batch: Batch) -> tuple[jax.Array, Tree]:
    """Every device's own loss and gradients; the gradients are averaged over those that share a parameter."""
    return context_parallel.loss_and_gradients(model, parameters, batch, Gathered())


PAGE = TABLE.by_hand(loss, loss_and_gradients)
