"""HSDP by hand: reduce-scatter gradients within a group, then all-reduce the shards between the groups.

    parameters       embed→data
    gradients        embed→data
    optimizer state  embed→data
    batch            batch→replica×data
    forward moves    all-gather of parameters over data; all-reduce of metrics over replica×data
    step moves       all-gather of parameters over data; reduce-scatter of gradients over data;
                     all-reduce of gradients over data; all-reduce of gradients over replica;
                     all-reduce of metrics over data; all-reduce of metrics over replica

The same table as ``hsdp``. It is ``fsdp_shard_map`` in every group, and one more average.
"""

from __future__ import annotations

from dataclasses import replace

import jax
from jax.lax import pmean

from meshproof.contract import Batch, Tree
from reference_impl.compat import varying
from reference_impl.models import Model
from reference_impl.models.layout import Layout
from reference_impl.shards import Shards
from reference_impl.strategies import fsdp_shard_map, hsdp

TABLE = replace(hsdp.TABLE, name="hsdp_shard_map")


def loss(model: Model, parameters: Tree, batch: Batch) -> jax.Array:
    """The mean of all devices' mean losses, at once."""
    with jax.named_scope("forward"):
        whole = Shards(model, TABLE.parameters, "data").gather(parameters)
        return pmean(model.loss(whole, batch, Layout()), ("replica", "data"))


def loss_and_gradients(model: Model, parameters: Tree, batch: Batch) -> tuple[jax.Array, Tree]:
    """Those of each group, averaged over the groups."""
    own = jax.tree.map(lambda shard: varying(shard, "replica"), parameters)
    within_group = fsdp_shard_map.loss_and_gradients(model, own, batch)
    with jax.named_scope("synchronize_gradients"):
        return pmean(within_group, "replica")


PAGE = TABLE.by_hand(loss, loss_and_gradients)
