"""FSDP by hand: all-gather the parameters, differentiate with respect to the whole, reduce-scatter the gradients.

    parameters       embed→data
    gradients        embed→data
    optimizer state  embed→data
    batch            batch→data
    forward moves    all-gather of parameters over data; all-reduce of metrics over data
    step moves       all-gather of parameters over data; reduce-scatter of gradients over data;
                     all-reduce of gradients over data; all-reduce of metrics over data

The same table as ``fsdp``; here every collective is written where it happens.
"""

from __future__ import annotations

from typing import Any

import jax
from jax.lax import all_gather, psum, psum_scatter

from meshproof.contract import Batch, Tree
from reference_impl.compat import varying
from reference_impl.mapping import Axes
from reference_impl.models import Model
from reference_impl.models.layout import Whole
from reference_impl.strategies.data_parallel_shard_map import average
from reference_impl.strategies.fsdp import COMMUNICATION, COMPUTE, GRADIENTS, OPTIMIZER, PARAMETERS

__all__ = ["COMMUNICATION", "COMPUTE", "GRADIENTS", "OPTIMIZER", "PARAMETERS", "loss", "loss_and_gradients"]


def loss(model: Model, parameters: Tree, batch: Batch) -> jax.Array:
    """Gather, compute on this device's examples, average."""
    with jax.named_scope("forward"):
        return average(model.loss(each(gather, parameters, model), batch, Whole()), model.count(batch))


def loss_and_gradients(model: Model, parameters: Tree, batch: Batch) -> tuple[jax.Array, Tree]:
    """Each device's gradients of the whole parameters, averaged into each device's shard."""

    def add(sums: Any) -> Any:
        return psum(sums[0], "data"), each(scatter, sums[1], model)

    with jax.named_scope("forward"):
        whole = each(gather, parameters, model)
        means = model.value_and_grad(model.loss)(whole, batch, Whole())
    with jax.named_scope("synchronize_gradients"):
        return average(means, model.count(batch), add)


def gather(shard: jax.Array, axes: Axes) -> jax.Array:
    """The whole parameter; one that is not sharded is merely made this device's own."""
    if "embed" in axes:
        return all_gather(shard, "data", axis=axes.index("embed"), tiled=True)
    return varying(shard, "data")


def scatter(gradient: jax.Array, axes: Axes) -> jax.Array:
    """This device's shard of the summed gradient."""
    if "embed" in axes:
        return psum_scatter(gradient, "data", scatter_dimension=axes.index("embed"), tiled=True)
    return psum(gradient, "data")


def each(function: Any, tree: Tree, model: Model) -> Tree:
    """``function(leaf, logical axes)`` on every leaf."""
    return jax.tree.map(function, dict(tree), model.axes)
