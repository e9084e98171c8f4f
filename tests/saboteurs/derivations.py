"""Lying contracts where bytes are harder to derive: tokens are exchanged, digits are fewer, batches come in parts.

Every byte that moves is listed, and more of them than the layouts need.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
from jax.lax import optimization_barrier, pmean
from jax.sharding import PartitionSpec

from meshproof.contract import Contract
from reference_impl.cases.modified import MIXED
from reference_impl.models.layout import Layout
from reference_impl.models.mlp import MLP
from reference_impl.models.moe import MoE
from reference_impl.modifiers.accumulation import Accumulated
from reference_impl.modifiers.precision import narrow
from reference_impl.page import ManualPage
from reference_impl.shards import Shards, shared_over
from reference_impl.strategies import (
    context_parallel,
    data_parallel_shard_map,
    expert_fsdp_shard_map,
    expert_parallel_shard_map,
    fsdp_context_parallel,
    fsdp_shard_map,
)
from tests.healthy.recipes import Uncertain
from tests.saboteurs.budgets import Restates, again, gathers_squares, over_data
from tests.saboteurs.collectives import synchronize_by
from tests.saboteurs.experts import EXPERT, WIDE
from tests.saboteurs.modifiers import ReducesEach
from tests.saboteurs.planting import DATA, Unchecked, plant, plant_stranger
from tests.saboteurs.transformers import of_gpt

RING, SPLIT_RING = {"data": 2, "context": 4}, {"data": 4, "context": 2}
ACCUMULATED = Accumulated(MLP())


def reduces_again(page: ManualPage, over: tuple[str, ...]) -> dict[str, Any]:
    """Averages gradients once more over what they are averaged over: the same means, and budgeted."""

    def loss_and_gradients(model: Any, parameters: Any, batch: Any) -> Any:
        def again_over(mean: jax.Array, axes: Any) -> jax.Array:
            return pmean(optimization_barrier(mean), shared_over(axes, page.compute, over))

        loss, gradients = page.loss_and_gradients(model, parameters, batch)
        return loss, jax.tree.map(again_over, gradients, model.axes)

    return {"loss_and_gradients": loss_and_gradients} | again(page, "gradients")


def as_statistics(said: Contract) -> dict[str, Any]:
    """A second gather of what is gathered, by another word."""
    gathered = [line for line in said.step or () if line.payload == "parameters"]
    return {"step": (*(said.step or ()), *(replace(line, payload="statistics") for line in gathered))}


def to_their_experts(model: Any, parameters: Any) -> Any:
    """The gather of experts and FSDP."""
    return jax.tree.map(expert_fsdp_shard_map.gather, parameters, model.axes)


EXPERTS_AGAIN = reduces_again(expert_parallel_shard_map.PAGE, ("expert",))
plant(
    "experts_reduced_twice", Unchecked, expert_parallel_shard_map.PAGE, EXPERT, "COM-2", network=MoE(), **EXPERTS_AGAIN
)
GATHERS = gathers_squares(expert_fsdp_shard_map.PAGE, to_their_experts)
plant("experts_gathered_twice", Unchecked, expert_fsdp_shard_map.PAGE, WIDE, "COM-4", network=MoE(), **GATHERS)
plant(
    "experts_said_to_be_whole",
    partial(Restates, restated=lambda said: {"computed": {"*": PartitionSpec()}}),
    expert_parallel_shard_map.PAGE,
    EXPERT,
    "COM-2",
    network=MoE(),
)

REDUCES = reduces_again(context_parallel.PAGE, ("data", "context"))
plant("ring_reduced_twice", of_gpt(Unchecked), context_parallel.PAGE, RING, "COM-2", **REDUCES)
GATHERS = gathers_squares(fsdp_context_parallel.PAGE, over_data)
plant("ring_gathered_twice", of_gpt(Unchecked), fsdp_context_parallel.PAGE, SPLIT_RING, "COM-4", **GATHERS)


def casts_first(model: Any, parameters: Any, batch: Any) -> Any:
    """FSDP that gathers in bfloat16 what it computes with in bfloat16; a CPU's compiler moves it in float32."""
    shards = Shards(model, fsdp_shard_map.PAGE.parameters, "data")
    whole = jax.tree.map(lambda w: w.astype(jnp.float32), shards.gather(jax.tree.map(narrow, dict(parameters))))
    loss, gradients = jax.value_and_grad(model.loss)(whole, batch, Layout())
    return pmean(loss, "data"), shards.scatter_mean(gradients)


def forgets_one(gradients: Any) -> Any:
    """One layer's gradients are each device's own."""
    return pmean(gradients, "data") | {"dense_1": gradients["dense_1"]}


def without_it(said: Contract) -> dict[str, Any]:
    """What is reduced is less by that layer."""
    forgotten = sum(prod(shape) for shape in MIXED.shapes["dense_1"].values()) * 4
    of = {line: line.bytes - forgotten * (line.payload == "gradients") for line in said.step}
    return {"step": tuple(replace(line, bytes=left) for line, left in of.items())}


CASTS = {"network": MIXED, "loss_and_gradients": casts_first}
plant("healthy_mixed_cast_before_gather", Unchecked, fsdp_shard_map.PAGE, DATA, **CASTS)
GATHERS = gathers_squares(fsdp_shard_map.PAGE, over_data)
plant("mixed_gathered_twice", Unchecked, fsdp_shard_map.PAGE, DATA, "COM-4", network=MIXED, **GATHERS)
plant("accumulated_and_gathered_twice", Unchecked, fsdp_shard_map.PAGE, DATA, "COM-4", network=ACCUMULATED, **GATHERS)
plant(
    "gathered_twice_as_statistics",
    partial(Restates, restated=as_statistics),
    fsdp_shard_map.PAGE,
    DATA,
    "COM-2",
    loss_and_gradients=GATHERS["loss_and_gradients"],
)
REDUCES = reduces_again(data_parallel_shard_map.PAGE, ("data",))
plant("mixed_reduced_twice", Unchecked, data_parallel_shard_map.PAGE, DATA, "COM-2", network=MIXED, **REDUCES)
plant(
    "mixed_layer_unreduced",
    partial(Restates, restated=without_it),
    data_parallel_shard_map.PAGE,
    DATA,
    "COM-2",
    network=MIXED,
    loss_and_gradients=synchronize_by(forgets_one),
)

TWICE = {"network": ReducesEach(ACCUMULATED)} | again(data_parallel_shard_map.PAGE, "gradients", "metrics")
plant("accumulated_and_reduced_twice", Unchecked, data_parallel_shard_map.PAGE, DATA, "COM-2", "COM-9", **TWICE)
for name, members in (("healthy_with_layouts_left_out", {}), ("accumulated_with_layouts_left_out", TWICE)):
    clauses = ("COM-9",) if members else ()
    form = partial(Restates, restated=lambda said: {"gradients": None})
    plant(name, form, data_parallel_shard_map.PAGE, DATA, *clauses, **members)


class DoubtOfOneDevice(Uncertain):
    """Each device learns of its own rows how sure it is, where COM-2 takes that gradient for one of sums."""

    name, model = "doubt_of_one_device", "doubtful_mlp"

    def value_and_gradients(self, w: Any, batch: Any) -> Any:
        """Reduced, but for that one."""

        def local(w: Any, batch: Any) -> Any:
            value, gradients = jax.value_and_grad(self.mean_loss)(w, batch)
            own = gradients.pop("doubt")
            return pmean(value, "data"), pmean(gradients, "data") | {"doubt": own}

        specs = {"in_specs": (PartitionSpec(), self.rows), "out_specs": PartitionSpec(), "check_vma": False}
        return jax.shard_map(local, mesh=self.mesh, **specs)(w, batch)


plant_stranger(DoubtOfOneDevice(), "NUM-2", "NUM-6")
