"""Sequence parallel by hand: gather the sequence where a block begins, scatter its sum where it ends.

    parameters       heads→model, mlp→model, position→model
    gradients        heads→model, mlp→model, position→model
    optimizer state  heads→model, mlp→model, position→model
    batch            batch→data
    forward moves    all-gather of activations over model; reduce-scatter of activations over model;
                     all-reduce of metrics over data×model
    step moves       all-gather of activations over model; reduce-scatter of activations over model;
                     all-reduce of gradients over data; all-reduce of gradients over data×model;
                     all-reduce of metrics over data×model

``sequence_parallel``, but gradients of replicated parameters are reduced over both axes at once. All-gather and
reduce-scatter are each other's transpose: the backward pass moves what the forward pass moves, at the other ends of
the blocks.
"""

from __future__ import annotations

from dataclasses import replace

import jax
from jax.lax import all_gather, axis_index, axis_size, dynamic_slice_in_dim, pmean, psum_scatter

from meshproof.contract import Batch, Tree
from reference_impl.mapping import Axes
from reference_impl.models import Model
from reference_impl.models.layout import Layout
from reference_impl.page import Budget, all_reduce
from reference_impl.shards import make_own, mean_of_own
from reference_impl.strategies import sequence_parallel
from reference_impl.strategies.sequence_parallel import ACTIVATIONS

BOTH = ("data", "model")
METRICS = all_reduce("metrics", over=BOTH)

TABLE = replace(
    sequence_parallel.PAGE,
    name="sequence_parallel_shard_map",
    communication=Budget(
        forward=[*ACTIVATIONS, METRICS],
        step=[*ACTIVATIONS, all_reduce("gradients", over="data"), all_reduce("gradients", over=BOTH), METRICS],
    ),
)


class SplitSequence(Layout):
    """Between the regions each device has its own part of the sequence, within them its own heads."""

    def enter(self, x: jax.Array, into: str) -> jax.Array:
        """The whole sequence, gathered."""
        return all_gather(x, "model", axis=1, tiled=True)

    def leave(self, y: jax.Array, over: str, axes: Axes) -> jax.Array:
        """This device's part of the sum over all devices' heads, or parts of the MLP."""
        return psum_scatter(y, "model", scatter_dimension=1, tiled=True) if TABLE.compute.of(over) else y


SPLIT_SEQUENCE = SplitSequence()


def loss(model: Model, parameters: Tree, batch: Batch, layout: Layout = SPLIT_SEQUENCE) -> jax.Array:
    """The mean of the devices' mean losses of their own tokens."""
    with jax.named_scope("forward"):
        return pmean(model.loss(parameters, own_part(batch), layout), BOTH)


def loss_and_gradients(
    model: Model, parameters: Tree, batch: Batch, layout: Layout = SPLIT_SEQUENCE
) -> tuple[jax.Array, Tree]:
    """Every device differentiates its own loss; the gradients are averaged over those that share a parameter."""
    with jax.named_scope("forward"):
        own = make_own(parameters, model, TABLE.compute, BOTH)
        local_loss, gradients = jax.value_and_grad(model.loss)(own, own_part(batch), layout)
    with jax.named_scope("synchronize_gradients"):
        return pmean(local_loss, BOTH), mean_of_own(gradients, model, TABLE.compute, BOTH)


def own_part(batch: Batch) -> Batch:
    """This device's part of the sequence of its examples: tokens (B, T/model)."""

    def cut(tokens_BxT: jax.Array) -> jax.Array:
        length = tokens_BxT.shape[1] // axis_size("model")
        return dynamic_slice_in_dim(tokens_BxT, axis_index("model") * length, length, axis=1)

    return jax.tree.map(cut, dict(batch))  # type: ignore[no-any-return]


PAGE = TABLE.by_hand(loss, loss_and_gradients)
