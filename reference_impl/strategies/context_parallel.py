"""Context parallel by hand (ring attention): the sequence is split; keys and values go round a ring of devices.

    parameters       position→context
    gradients        position→context
    optimizer state  position→context
    batch            batch→data, length→context
    forward moves    collective-permute of activations over context; all-reduce of metrics over data×context
    step moves       collective-permute of activations over context; all-reduce of gradients over data;
                     all-reduce of gradients over data×context; all-reduce of metrics over data×context

Everything but attention is local to a token. A device keeps its queries. Keys and values go round the ring: after one
hop fewer than there are devices, every query has seen all of them. The gradients of the keys come back the same way
(Liu et al. 2023, "Ring Attention with Blockwise Transformers for Near-Infinite Context").
"""

from __future__ import annotations

import jax
from jax.lax import pmean

from meshproof.contract import Batch, Tree
from reference_impl.mapping import Mapping
from reference_impl.models import Model
from reference_impl.models.attention import ring_attention
from reference_impl.models.layout import Layout
from reference_impl.page import Budget, Page, all_reduce, collective_permute
from reference_impl.shards import make_own, mean_of_own

BOTH = ("data", "context")
KEYS_AND_VALUES = collective_permute("activations", over="context")
METRICS = all_reduce("metrics", over=BOTH)

AT_REST = Mapping(position="context")

TABLE = Page(
    name="context_parallel",
    compute=Mapping(batch="data", length="context", sequence="context", position="context"),
    parameters=AT_REST,
    gradients=AT_REST,
    optimizer=AT_REST,
    communication=Budget(
        forward=[KEYS_AND_VALUES, METRICS],
        step=[KEYS_AND_VALUES, all_reduce("gradients", over="data"), all_reduce("gradients", over=BOTH), METRICS],
    ),
)


class Ring(Layout):
    """Each device has its own part of the sequence; the others' keys and values arrive one part at a time."""

    def attend(self, q_BxTxHxK: jax.Array, k_BxSxHxK: jax.Array, v_BxSxHxK: jax.Array) -> jax.Array:
        """Over the whole sequence; keys and values go round the ring."""
        return ring_attention(q_BxTxHxK, k_BxSxHxK, v_BxSxHxK, over="context")


RING = Ring()


def loss(model: Model, parameters: Tree, batch: Batch, layout: Layout = RING) -> jax.Array:
    """The mean of the devices' mean losses of their own tokens."""
    with jax.named_scope("forward"):
        return pmean(model.loss(parameters, batch, layout), BOTH)


def loss_and_gradients(model: Model, parameters: Tree, batch: Batch, layout: Layout = RING) -> tuple[jax.Array, Tree]:
    """Every device's own loss and gradients; the gradients are averaged over those that share a parameter."""
    with jax.named_scope("forward"):
        own = make_own(parameters, model, TABLE.compute, BOTH)
        local_loss, gradients = jax.value_and_grad(model.loss)(own, batch, layout)
    with jax.named_scope("synchronize_gradients"):
        return pmean(local_loss, BOTH), mean_of_own(gradients, model, TABLE.compute, BOTH)


PAGE = TABLE.by_hand(loss, loss_and_gradients)
