"""FSDP and context parallel by hand: parameters are gathered over one axis, keys and values go round the other.

    parameters       embed→data, position→context
    gradients        embed→data, position→context
    optimizer state  embed→data, position→context
    batch            batch→data, length→context
    forward moves    all-gather of parameters over data; collective-permute of activations over context;
                     all-reduce of metrics over data×context
    step moves       all-gather of parameters over data; collective-permute of activations over context;
                     reduce-scatter of gradients over data; all-reduce of gradients over data;
                     all-reduce of gradients over context; all-reduce of metrics over data;
                     all-reduce of metrics over context

A long sequence needs both: the ring divides its activations, FSDP the parameters. Gradients are reduce-scattered over
``data``, where the examples differ, and their shards all-reduced over ``context``, where the tokens differ.
"""

from __future__ import annotations

from dataclasses import replace

import jax
from jax.lax import pmean

from meshproof.contract import Batch, Tree
from reference_impl.mapping import Mapping
from reference_impl.models import Model
from reference_impl.page import Budget, all_gather, all_reduce, reduce_scatter
from reference_impl.shards import Shards, make_own, mean_of_own
from reference_impl.strategies import context_parallel
from reference_impl.strategies.context_parallel import KEYS_AND_VALUES, Ring

AT_REST = Mapping(embed="data", position="context")

TABLE = replace(
    context_parallel.TABLE,
    name="fsdp_context_parallel",
    parameters=AT_REST,
    gradients=AT_REST,
    optimizer=AT_REST,
    communication=Budget(
        forward=[
            all_gather("parameters", over="data"),
            KEYS_AND_VALUES,
            all_reduce("metrics", over=("data", "context")),
        ],
        step=[
            all_gather("parameters", over="data"),
            KEYS_AND_VALUES,
            reduce_scatter("gradients", over="data"),
            all_reduce("gradients", over="data"),
            all_reduce("gradients", over="context"),
            all_reduce("metrics", over="data"),
            all_reduce("metrics", over="context"),
        ],
    ),
)


def loss(model: Model, parameters: Tree, batch: Batch) -> jax.Array:
    """Gather, compute on this device's tokens, average."""
    with jax.named_scope("forward"):
        whole = Shards(model, TABLE.parameters, "data").gather(parameters)
        return pmean(model.loss(whole, batch, Ring()), ("data", "context"))


def loss_and_gradients(model: Model, parameters: Tree, batch: Batch) -> tuple[jax.Array, Tree]:
    """Each device's gradients of the whole parameters, averaged into its shard, and along the sequence."""
    shards = Shards(model, TABLE.parameters, "data")
    with jax.named_scope("forward"):
        own = make_own(shards.gather(parameters), model, TABLE.compute, ("context",))
        local_loss, gradients = jax.value_and_grad(model.loss)(own, batch, Ring())
    with jax.named_scope("synchronize_gradients"):
        scattered = mean_of_own(shards.scatter_mean(gradients), model, TABLE.compute, ("context",))
        return pmean(pmean(local_loss, "data"), "context"), scattered


PAGE = TABLE.by_hand(loss, loss_and_gradients)
