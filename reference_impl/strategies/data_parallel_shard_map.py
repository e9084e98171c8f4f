"""Data parallel by hand: each device differentiates its own examples' mean loss, then all are averaged once.

    parameters       whole
    gradients        whole
    optimizer state  whole
    batch            batch→data
    forward moves    all-reduce of metrics over data
    step moves       all-reduce of gradients over data; all-reduce of metrics over data

The footgun: in ``shard_map`` the gradient of a replicated parameter arrives already *summed* over the axis, and a
``pmean`` after it trains on the sum. Therefore the parameters are made varying first, and the average is written out.
It divides a sum by a count at the very end: a mean of means is wrong as soon as one device has fewer valid examples.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
from jax.lax import psum

from meshproof.contract import Batch, Tree
from reference_impl.compat import varying
from reference_impl.models import Model
from reference_impl.models.layout import Layout
from reference_impl.strategies import data_parallel


def loss(model: Model, parameters: Tree, batch: Batch) -> jax.Array:
    """The mean over the examples of all devices."""
    with jax.named_scope("forward"):
        return average(model.loss(parameters, batch, Layout()), model.count(batch))


def loss_and_gradients(model: Model, parameters: Tree, batch: Batch) -> tuple[jax.Array, Tree]:
    """Every device's own loss and gradients, averaged once."""
    with jax.named_scope("forward"):
        own = jax.tree.map(lambda w: varying(w, "data"), parameters)
        local = model.value_and_grad(model.loss)(own, batch, Layout())
    with jax.named_scope("synchronize_gradients"):
        return average(local, model.count(batch))


def average(means: Any, count: int | jax.Array, add: Any = lambda sums: psum(sums, "data")) -> Any:
    """The mean over the examples of all devices, of means over ``count`` of this device's own."""
    sums, examples = add(jax.tree.map(lambda mean: mean * count, means)), psum(count, "data")
    return jax.tree.map(lambda total: total / examples, sums)


PAGE = replace(data_parallel.PAGE, name="data_parallel_shard_map").by_hand(loss, loss_and_gradients)
