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

from dataclasses import replace
from typing import Any

import jax
from jax.lax import psum

from meshproof.contract import Batch, Tree
from reference_impl.models import Model
from reference_impl.models.layout import Layout
from reference_impl.shards import Shards
from reference_impl.strategies import fsdp
from reference_impl.strategies.data_parallel_shard_map import average

TABLE = replace(fsdp.PAGE, name="fsdp_shard_map")


def loss(model: Model, parameters: Tree, batch: Batch) -> jax.Array:
    """Gather, compute on this device's examples, average."""
    with jax.named_scope("forward"):
        return average(
            model.loss(Shards(model, TABLE.parameters, "data").gather(parameters), batch, Layout()), model.count(batch)
        )


def loss_and_gradients(model: Model, parameters: Tree, batch: Batch) -> tuple[jax.Array, Tree]:
    """Each device's gradients of the whole parameters, averaged into each device's shard."""
    shards = Shards(model, TABLE.parameters, "data")

    def add(sums: Any) -> Any:
        return psum(sums[0], "data"), shards.scatter_sum(sums[1])

    with jax.named_scope("forward"):
        means = model.value_and_grad(model.loss)(shards.gather(parameters), batch, Layout())
    with jax.named_scope("synchronize_gradients"):
        return average(means, model.count(batch), add)


PAGE = TABLE.by_hand(loss, loss_and_gradients)
