"""HSDP by hand, block by block: gathers and scatters stay within a group; groups average once, after the last block.

    parameters       embed→data
    gradients        embed→data
    optimizer state  embed→data
    batch            batch→replica×data
    forward moves    all-gather of parameters over data; all-reduce of metrics over replica×data
    step moves       all-gather of parameters over data; reduce-scatter of gradients over data;
                     all-reduce of gradients over data; all-reduce of gradients over replica;
                     all-reduce of metrics over data; all-reduce of metrics over replica

The same table as ``hsdp``. It is ``fsdp_blockwise_shard_map`` in every group, and one more average.
"""

from __future__ import annotations

from dataclasses import replace

import jax
from jax.lax import axis_size, pmean, psum

from meshproof.contract import Batch, Tree
from reference_impl.compat import varying
from reference_impl.models import Model
from reference_impl.strategies import fsdp_blockwise_shard_map, hsdp
from reference_impl.strategies.fsdp_blockwise_shard_map import GATHERED, share


def loss(model: Model, parameters: Tree, batch: Batch) -> jax.Array:
    """The mean of the groups' means, at once."""
    with jax.named_scope("forward"):
        own = share(model, parameters, batch, GATHERED)
        return psum(own, ("replica", "data")) / axis_size("replica")


def loss_and_gradients(model: Model, parameters: Tree, batch: Batch) -> tuple[jax.Array, Tree]:
    """Those of each group, averaged over the groups."""
    own = jax.tree.map(lambda shard: varying(shard, "replica"), parameters)
    within_group = fsdp_blockwise_shard_map.loss_and_gradients(model, own, batch)
    with jax.named_scope("synchronize_gradients"):
        return pmean(within_group, "replica")


PAGE = replace(hsdp.TABLE, name="hsdp_blockwise_shard_map").by_hand(loss, loss_and_gradients)
