"""Faults in collectives that are written by hand."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.lax import optimization_barrier, pmean, psum

from reference_impl.models.layout import Layout
from reference_impl.shards import Shards
from reference_impl.strategies import (
    data_parallel_shard_map,
    fsdp_shard_map,
    tensor_parallel_shard_map,
)
from tests.saboteurs.planting import DATA, MODEL, Unchecked, plant


def synchronize_by(synchronize: Any) -> Any:
    """Data parallelism whose gradients are synchronized another way."""

    def loss_and_gradients(model: Any, parameters: Any, batch: Any) -> Any:
        loss, gradients = jax.value_and_grad(model.loss)(parameters, batch, Layout())
        return pmean(loss, "data"), synchronize(gradients)

    return loss_and_gradients


def each(function: Any) -> Any:
    """``function`` on every gradient leaf."""
    return lambda gradients: jax.tree.map(function, gradients)


def all_but_one(gradients: Any) -> Any:
    """One leaf is forgotten."""
    return pmean(gradients, "data") | {"dense_3": gradients["dense_3"]}


def rolled(gradients: Any) -> Any:
    """One kernel's gradient is shifted by a row."""
    synchronized = pmean(gradients, "data")
    layer = synchronized["dense_1"]
    return synchronized | {"dense_1": layer | {"kernel": jnp.roll(layer["kernel"], 1, axis=0)}}


def in_bf16(gradient: Any) -> Any:
    """Reduced in half the bytes, and an eighth of the digits."""
    return pmean(gradient.astype(jnp.bfloat16), "data").astype(jnp.float32)


def twice(gradient: Any) -> Any:
    """Reduced, and reduced again: the same mean, double the bytes."""
    return pmean(optimization_barrier(pmean(gradient, "data")), "data")


def in_groups_of_four(gradient: Any) -> Any:
    """The mean of four of the eight devices."""
    return pmean(gradient, "data", axis_index_groups=[[0, 1, 2, 3], [4, 5, 6, 7]])


def drifting(gradient: Any) -> Any:
    """Each device adds a little of its own."""
    return pmean(gradient, "data") + 1e-9 * jax.lax.axis_index("data")


HEALTHY = {"loss_and_gradients": synchronize_by(each(lambda g: pmean(g, "data")))}
plant("healthy_data_parallel", Unchecked, data_parallel_shard_map.PAGE, DATA, **HEALTHY)
for name, synchronize, clauses in (
    ("missing_reduction", lambda gradients: gradients, ("COM-2", "NUM-2", "NUM-6")),
    ("sum_for_mean", each(lambda g: psum(g, "data")), ("NUM-2", "NUM-3")),
    ("one_unreduced_leaf", all_but_one, ("COM-2", "NUM-2")),
    ("gradient_rolled_by_a_row", rolled, ("NUM-2",)),
    ("bf16_reduction", each(in_bf16), ("NUM-2", "MIX-2")),
    ("reduced_twice", each(twice), ("COM-2", "COM-11")),
    ("reduced_in_groups_of_four", each(in_groups_of_four), ("COM-2", "COM-11", "NUM-2", "NUM-6")),
    ("drifting_replicas", each(drifting), ("NUM-6",)),
):
    harm = {"loss_and_gradients": synchronize_by(synchronize)}
    plant(name, Unchecked, data_parallel_shard_map.PAGE, DATA, *clauses, **harm)


def gathers_twice(model: Any, parameters: Any, batch: Any) -> Any:
    """FSDP that gathers what it has gathered."""
    again = jax.tree.map(optimization_barrier, dict(parameters))
    first = shards(model).gather(again)
    loss, gradients = fsdp_shard_map.loss_and_gradients(model, parameters, batch)
    return loss + 0 * pmean(sum(jnp.sum(w) for w in jax.tree.leaves(first)), "data"), gradients


def shards(model: Any) -> Shards:
    """FSDP's."""
    return Shards(model, fsdp_shard_map.PAGE.parameters, "data")


def scatter_by_slicing(shards: Shards, gradients: Any) -> Any:
    """All-reduce, then keep the own shard: the right numbers, twice the traffic."""
    return shards.own(pmean(gradients, "data"))


def all_reduces(model: Any, parameters: Any, batch: Any) -> Any:
    """FSDP whose gradients are all-reduced."""
    whole = shards(model).gather(parameters)
    loss, gradients = jax.value_and_grad(model.loss)(whole, batch, Layout())
    return pmean(loss, "data"), scatter_by_slicing(shards(model), gradients)


plant("healthy_fsdp_by_hand", Unchecked, fsdp_shard_map.PAGE, DATA)
plant("redundant_all_gather", Unchecked, fsdp_shard_map.PAGE, DATA, "COM-4", "COM-11", loss_and_gradients=gathers_twice)
plant("all_reduce_for_reduce_scatter", Unchecked, fsdp_shard_map.PAGE, DATA, "COM-4", loss_and_gradients=all_reduces)


def drifts_along_model(model: Any, parameters: Any, batch: Any) -> Any:
    """Tensor parallelism in which each device adds a little of its own to a bias that all of them have."""
    loss, gradients = tensor_parallel_shard_map.loss_and_gradients(model, parameters, batch)
    head = gradients["dense_3"]
    drift = 1e-9 * jax.lax.axis_index("model").astype(jnp.float32)
    return loss, gradients | {"dense_3": head | {"bias": head["bias"] + drift}}


DRIFTS = {"loss_and_gradients": drifts_along_model}
plant("drifting_along_model", Unchecked, tensor_parallel_shard_map.PAGE, MODEL, "NUM-6", **DRIFTS)
