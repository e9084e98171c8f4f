"""ZeRO-2 by hand: reduce-scatter the gradients, update the own shard of each parameter, all-gather what was updated.

    parameters       whole
    gradients        embed→data
    optimizer state  embed→data
    batch            batch→data
    forward moves    all-reduce of metrics over data
    step moves       reduce-scatter of gradients over data; all-reduce of gradients over data;
                     all-gather of parameters over data; all-reduce of metrics over data

The same table as ``zero2``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
from jax.lax import pmean

from meshproof.contract import Batch, Tree
from reference_impl.compat import varying
from reference_impl.models import Model
from reference_impl.models.layout import Layout
from reference_impl.page import Optimize
from reference_impl.shards import Shards
from reference_impl.strategies import zero2
from reference_impl.strategies.data_parallel_shard_map import loss

TABLE = replace(zero2.PAGE, name="zero2_shard_map")


def loss_and_gradients(model: Model, parameters: Tree, batch: Batch) -> tuple[jax.Array, Tree]:
    """Every device's own gradients, averaged into each device's shard."""
    with jax.named_scope("forward"):
        own = jax.tree.map(lambda w: varying(w, "data"), parameters)
        local_loss, gradients = jax.value_and_grad(model.loss)(own, batch, Layout())
    with jax.named_scope("synchronize_gradients"):
        return pmean(local_loss, "data"), Shards(model, TABLE.gradients, "data").scatter_mean(gradients)


def update(model: Model, optimize: Optimize, parameters: Tree, state: Any, gradients: Tree) -> tuple[Tree, Any]:
    """Each device updates the shard whose optimizer state it holds; then all shards are gathered."""
    shards = Shards(model, TABLE.optimizer, "data")
    updated, state = optimize(shards.own(parameters), state, gradients)
    return shards.gather_equal(updated), state


PAGE = TABLE.by_hand(loss, loss_and_gradients, update)
