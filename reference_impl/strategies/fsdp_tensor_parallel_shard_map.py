"""FSDP and tensor parallel by hand: gather parameters over one axis, reduce activations over the other.

    parameters       embed→data, heads→model, mlp→model
    gradients        embed→data, heads→model, mlp→model
    optimizer state  embed→data, heads→model, mlp→model
    batch            batch→data
    forward moves    all-gather of parameters over data; all-reduce of activations over model;
                     all-reduce of metrics over data
    step moves       all-gather of parameters over data; all-reduce of activations over model;
                     reduce-scatter of gradients over data; all-reduce of gradients over data;
                     all-reduce of metrics over data

The same table as ``fsdp_tensor_parallel``: ``fsdp_shard_map``'s parameters, ``tensor_parallel_shard_map``'s layers.
"""

from __future__ import annotations

from dataclasses import replace

import jax
from jax.lax import pmean

from meshproof.contract import Batch, Tree
from reference_impl.models import Model
from reference_impl.shards import Shards
from reference_impl.strategies import fsdp_tensor_parallel
from reference_impl.strategies.tensor_parallel_shard_map import Megatron

TABLE = replace(fsdp_tensor_parallel.PAGE, name="fsdp_tensor_parallel_shard_map")


def loss(model: Model, parameters: Tree, batch: Batch) -> jax.Array:
    """Gather, compute on this device's examples and its part of the layers, average."""
    with jax.named_scope("forward"):
        return pmean(model.loss(Shards(model, TABLE.parameters, "data").gather(parameters), batch, Megatron()), "data")


def loss_and_gradients(model: Model, parameters: Tree, batch: Batch) -> tuple[jax.Array, Tree]:
    """Each device's gradients of its part of the layers, averaged into its shard of them."""
    shards = Shards(model, TABLE.parameters, "data")
    with jax.named_scope("forward"):
        local_loss, gradients = jax.value_and_grad(model.loss)(shards.gather(parameters), batch, Megatron())
    with jax.named_scope("synchronize_gradients"):
        return pmean(local_loss, "data"), shards.scatter_mean(gradients)


PAGE = TABLE.by_hand(loss, loss_and_gradients)
