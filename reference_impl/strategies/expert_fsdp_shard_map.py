"""Expert parallel and FSDP by hand: gather over where a parameter is split, exchange the tokens, scatter the gradients.

    parameters       experts→expert, expert_embed→data, embed→data×expert
    gradients        experts→expert, expert_embed→data, embed→data×expert
    optimizer state  experts→expert, expert_embed→data, embed→data×expert
    batch            batch→data×expert
    forward moves    all-gather of parameters over data; all-gather of parameters over data×expert;
                     all-to-all of activations over expert; all-reduce of metrics over data×expert
    step moves       all-gather of parameters over data; all-gather of parameters over data×expert;
                     all-to-all of activations over expert; reduce-scatter of gradients over data;
                     reduce-scatter of gradients over data×expert; all-reduce of gradients over data×expert;
                     all-reduce of metrics over data×expert

The same table as ``expert_fsdp``. An expert's width is split over ``data``, so it is gathered and scattered over
``data`` alone. The all-to-all's transpose has already summed its gradient over ``expert``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import jax
from jax.lax import all_gather, axis_size, pmean, psum_scatter

from meshproof.contract import Batch, Tree
from reference_impl.compat import varying
from reference_impl.mapping import Axes, MeshAxes
from reference_impl.models import Model
from reference_impl.strategies import expert_fsdp
from reference_impl.strategies.expert_parallel_shard_map import Exchange

TABLE = replace(expert_fsdp.PAGE, name="expert_fsdp_shard_map")

BOTH = ("data", "expert")


def loss(model: Model, parameters: Tree, batch: Batch) -> jax.Array:
    """Gather, compute on this device's tokens with the experts along ``expert``, average."""
    with jax.named_scope("forward"):
        in_use = jax.tree.map(gather, dict(parameters), model.axes)
        return pmean(model.loss(in_use, batch, Exchange()), BOTH)


def loss_and_gradients(model: Model, parameters: Tree, batch: Batch) -> tuple[jax.Array, Tree]:
    """The mean loss, and each device's shards of the mean gradients."""
    with jax.named_scope("forward"):
        in_use = jax.tree.map(gather, dict(parameters), model.axes)
        local_loss, gradients = jax.value_and_grad(model.loss)(in_use, batch, Exchange())
    with jax.named_scope("synchronize_gradients"):
        return pmean(local_loss, BOTH), jax.tree.map(scatter_mean, gradients, model.axes)


def gather(shard: jax.Array, axes: Axes) -> jax.Array:
    """The parameter as this device computes with it: whole, or a whole one of its own experts."""
    for dimension, over in widths(axes):
        return all_gather(shard, over, axis=dimension, tiled=True)
    return varying(shard, BOTH)


def scatter_mean(gradient: jax.Array, axes: Axes) -> jax.Array:
    """This device's shard of the mean over all devices; one that is not sharded is merely averaged."""
    for dimension, over in widths(axes):
        return psum_scatter(gradient, over, scatter_dimension=dimension, tiled=True) / axis_size(BOTH)
    return pmean(gradient, BOTH)


def widths(axes: Axes) -> Iterator[tuple[int, MeshAxes]]:
    """The dimension that is split at rest and whole in use, if there is one, and its mesh axes."""
    for dimension, logical in enumerate(axes):
        if TABLE.parameters.of(logical) != TABLE.compute.of(logical):
            yield dimension, TABLE.parameters.of(logical)


PAGE = TABLE.by_hand(loss, loss_and_gradients)
