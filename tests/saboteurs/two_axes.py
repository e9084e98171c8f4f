"""Faults over several axes at once: each axis alone moves what it might, and all together move too much.

Every byte that moves is listed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
from jax.lax import optimization_barrier, pmean, scan

from meshproof.contract import Communication, Contract, leaves
from reference_impl.compat import varying
from reference_impl.mapping import Mapping
from reference_impl.models.layout import Layout
from reference_impl.models.mlp import MLP
from reference_impl.modifiers.accumulation import Accumulated, split
from reference_impl.page import Budget, all_gather, all_reduce
from reference_impl.shards import Shards
from reference_impl.strategies import fsdp_shard_map, hsdp_shard_map, zero1_shard_map
from reference_impl.strategies.tensor_parallel_shard_map import Megatron
from tests.saboteurs.budgets import Restates
from tests.saboteurs.planting import BOTH, Unchecked, plant
from tests.saboteurs.sharded_state import HYBRID

UPDATED = Mapping(embed="data", mlp="model")


def tensor_parallel_loss(model: Any, parameters: Any, batch: Any) -> Any:
    """Of a tensor-parallel model, averaged over the data axis."""
    return pmean(model.loss(parameters, batch, Megatron()), "data")


def tensor_parallel_gradients(model: Any, parameters: Any, batch: Any) -> Any:
    """The same, with its gradients."""
    own = jax.tree.map(lambda w: varying(w, "data"), parameters)
    loss, gradients = jax.value_and_grad(model.loss)(own, batch, Megatron())
    return pmean(loss, "data"), pmean(gradients, "data")


def updates_shards(model: Any, optimize: Any, parameters: Any, state: Any, gradients: Any) -> Any:
    """ZeRO-1 beside tensor parallelism: a device updates its part of its part."""
    shards = Shards(model, UPDATED, "data")
    updated, state = optimize(shards.own(parameters), state, shards.own(gradients))
    return shards.gather_equal(updated), state


def gathers_updated_twice(model: Any, optimize: Any, parameters: Any, state: Any, gradients: Any) -> Any:
    """And gathers it twice."""
    updated, state = updates_shards(model, optimize, parameters, state, gradients)
    shards = Shards(model, UPDATED, "data")
    return shards.gather_equal(optimization_barrier(shards.own(updated))), state


SUMS, METRICS = all_reduce("activations", over="model"), all_reduce("metrics", over="data")
ZERO1_TENSOR = {
    "compute": Mapping(batch="data", mlp="model"),
    "parameters": Mapping(mlp="model"),
    "gradients": Mapping(mlp="model"),
    "optimizer": UPDATED,
    "loss": tensor_parallel_loss,
    "loss_and_gradients": tensor_parallel_gradients,
}
STEP = [SUMS, all_reduce("gradients", over="data"), all_gather("parameters", over="data"), METRICS]
for name, clauses, update, moved in (
    ("healthy_zero1_tensor_parallel", (), updates_shards, STEP),
    ("zero1_tensor_parallel_gathered_twice", ("COM-3",), gathers_updated_twice, [*STEP, STEP[2]]),
):
    budget = Budget([SUMS, METRICS], moved)
    plant(name, Unchecked, zero1_shard_map.PAGE, BOTH, *clauses, **ZERO1_TENSOR, update=update, communication=budget)

OUTER, INNER = {"outer": 2}, {"inner": 4}
OVER_BOTH = Mapping(embed=("outer", "inner"))
AXES = dict(leaves(MLP().axes))
SPLIT = sum(prod(shape) * 4 for path, shape in leaves(MLP().shapes) if "embed" in AXES[path])
WHOLE = sum(prod(shape) * 4 for path, shape in leaves(MLP().shapes) if "embed" not in AXES[path])


def gathers_in_turn(model: Any, parameters: Any, batch: Any) -> Any:
    """FSDP over two axes: over the inner one, then over the outer one."""
    outer, inner = Shards(model, OVER_BOTH, "outer"), Shards(model, OVER_BOTH, "inner")
    return pmean(model.loss(outer.gather(inner.gather(parameters)), batch, Layout()), ("outer", "inner"))


def in_turn(gathers_again: bool) -> Callable[..., Any]:
    """Its gradients, scattered the other way round; and squares of the parameters, gathered over the inner axis."""

    def loss_and_gradients(model: Any, parameters: Any, batch: Any) -> Any:
        outer, inner = Shards(model, OVER_BOTH, "outer"), Shards(model, OVER_BOTH, "inner")
        loss, gradients = jax.value_and_grad(model.loss)(outer.gather(inner.gather(parameters)), batch, Layout())
        squares = inner.gather(jax.tree.map(jnp.square, dict(parameters))) if gathers_again else {}
        loss += 0 * sum(jnp.sum(leaf) for leaf in jax.tree.leaves(squares))
        return pmean(loss, ("outer", "inner")), inner.scatter_mean(outer.scatter_mean(gradients))

    return loss_and_gradients


def priced(times: int) -> Callable[[Contract], dict[str, Any]]:
    """What moves where the inner axis gathers so often."""

    def restated(_: Contract) -> dict[str, Any]:
        gathers = [
            Communication("all-gather", ("inner",), "parameters", SPLIT // 2),
            Communication("all-gather", ("outer",), "parameters", SPLIT),
        ]
        gradients = [
            Communication("reduce-scatter", ("outer",), "gradients", SPLIT),
            Communication("reduce-scatter", ("inner",), "gradients", SPLIT // 2),
            Communication("all-reduce", ("outer",), "gradients", WHOLE),
            Communication("all-reduce", ("inner",), "gradients", WHOLE),
        ]
        metrics = Communication("all-reduce", ("outer", "inner"), "metrics", 4)
        again = gathers[:1] * (times - 1)
        return {"forward": (*gathers, metrics), "step": (*gathers, *again, *gradients, metrics)}

    return restated


LAID_OUT = {"parameters": OVER_BOTH, "gradients": OVER_BOTH, "optimizer": OVER_BOTH, "loss": gathers_in_turn}
for name, clauses, times in (("healthy_fsdp_over_two_axes", (), 1), ("gathered_twice_over_inner_axis", ("COM-4",), 2)):
    form, computed = partial(Restates, restated=priced(times)), Mapping(batch=("outer", "inner"))
    members = LAID_OUT | {"loss_and_gradients": in_turn(times > 1)}
    plant(name, form, fsdp_shard_map.PAGE, OUTER | INNER, *clauses, compute=computed, **members)


BOTH_AXES = ("outer", "inner")


def averaged(model: Any, parameters: Any, batch: Any) -> Any:
    """Data parallelism over two axes."""
    return pmean(model.loss(parameters, batch, Layout()), BOTH_AXES)


def averaged_gradients(model: Any, parameters: Any, batch: Any) -> Any:
    """Its gradients, reduced over both at once."""
    return pmean(jax.value_and_grad(model.loss)(parameters, batch, Layout()), BOTH_AXES)


def updates_in_turn(times: int) -> Callable[..., Any]:
    """ZeRO-1 over two axes: what was updated is gathered over the inner one, so often, then over the outer one."""

    def update(model: Any, optimize: Any, parameters: Any, state: Any, gradients: Any) -> Any:
        outer, inner = Shards(model, OVER_BOTH, "outer"), Shards(model, OVER_BOTH, "inner")
        own, slopes = inner.own(outer.own(parameters)), inner.own(outer.own(gradients))
        updated, state = optimize(own, state, slopes)
        half = inner.gather_equal(updated)
        for _ in range(times - 1):
            half = inner.gather_equal(optimization_barrier(inner.own(half)))
        return outer.gather_equal(half), state

    return update


def moved_in_turn(times: int) -> Callable[[Contract], dict[str, Any]]:
    """What moves then."""

    def restated(_: Contract) -> dict[str, Any]:
        inner = Communication("all-gather", ("inner",), "parameters", SPLIT // 2)
        outer = Communication("all-gather", ("outer",), "parameters", SPLIT)
        gradients = Communication("all-reduce", BOTH_AXES, "gradients", SPLIT + WHOLE)
        metrics = Communication("all-reduce", BOTH_AXES, "metrics", 4)
        return {"forward": (metrics,), "step": (gradients, *[inner] * times, outer, metrics)}

    return restated


LAID_OUT = {"optimizer": OVER_BOTH, "loss": averaged, "loss_and_gradients": averaged_gradients}
for name, clauses, times in (("healthy_zero1_over_two_axes", (), 1), ("updated_gathered_twice", ("COM-3",), 2)):
    form, computed = partial(Restates, restated=moved_in_turn(times)), Mapping(batch=BOTH_AXES)
    members = LAID_OUT | {"update": updates_in_turn(times)}
    plant(name, form, zero1_shard_map.PAGE, OUTER | INNER, *clauses, compute=computed, **members)


def reduces_each_microbatch(model: Any, parameters: Any, batch: Any) -> Any:
    """HSDP that reduces the gradients of each of four microbatches."""
    shards = Shards(model, hsdp_shard_map.PAGE.parameters, "data")
    whole = shards.gather(jax.tree.map(lambda shard: varying(shard, "replica"), dict(parameters)))

    def one(part: Any) -> Any:
        loss, gradients = jax.value_and_grad(model.model.loss)(whole, part, Layout())
        return pmean(pmean(loss, "data"), "replica"), pmean(shards.scatter_mean(gradients), "replica")

    def add(mean: Any, part: Any) -> Any:
        return jax.tree.map(lambda left, right: left + right / model.microbatches, mean, one(part)), None

    parts = split(batch, model.microbatches)
    first = jax.eval_shape(one, {name: field[0] for name, field in parts.items()})
    return scan(add, jax.tree.map(jnp.zeros_like, first), parts)[0]


def each_time(said: Contract) -> dict[str, Any]:
    """All that is reduced, once a microbatch."""
    of = {line: line.bytes * (1 if line.operation == "all-gather" else said.microbatches) for line in said.step}
    return {"step": tuple(replace(line, bytes=moved) for line, moved in of.items())}


plant(
    "healthy_hybrid_reduced_each_microbatch",
    partial(Restates, restated=each_time),
    hsdp_shard_map.PAGE,
    HYBRID,
    network=Accumulated(MLP()),
    loss_and_gradients=reduces_each_microbatch,
)
