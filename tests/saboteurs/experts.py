"""Faults in a mixture of experts: who goes where, and whose gradients meet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.lax import all_to_all, axis_index, axis_size, dynamic_slice_in_dim, pmean

from reference_impl.models.moe import MoE
from reference_impl.strategies import expert_fsdp, expert_fsdp_shard_map, expert_parallel_shard_map
from reference_impl.strategies.expert_fsdp_shard_map import BOTH, gather, scatter_mean, widths
from reference_impl.strategies.expert_parallel_shard_map import Exchange
from tests.saboteurs.communication import StorageOnly
from tests.saboteurs.planting import Unchecked, plant

EXPERT, HALF, WIDE = {"expert": 8}, {"expert": 4}, {"data": 2, "expert": 4}


class IgnoresCapacity(MoE):
    """Every expert has a place for everyone."""

    def apply(self, parameters: Any, x_BxD: Any, layout: Any) -> Any:
        """No token is dropped."""
        return MoE.apply(MoE(capacity_factor=4.0), parameters, x_BxD, layout)


class GroupsByDevice(MoE):
    """The places of an expert are for all tokens that a device happens to have: as many bytes, other tokens."""

    def apply(self, parameters: Any, x_BxD: Any, layout: Any) -> Any:
        """One group."""
        return MoE.apply(MoE(group=len(x_BxD)), parameters, x_BxD, layout)


class ForgetsToNormalise(MoE):
    """One device's gates do not sum to one."""

    def route(self, scores_GxSxE: Any) -> Any:
        """The fourth device's are the router's p as it is."""
        gates_GxSxE, seats_GxSxExP = super().route(scores_GxSxE)
        chosen_GxSxE = jnp.where(gates_GxSxE > 0, jax.nn.softmax(scores_GxSxE), 0.0)
        return jnp.where(axis_index("expert") == 3, chosen_GxSxE, gates_GxSxE), seats_GxSxExP


class ToTheNeighbour(Exchange):
    """Tokens go to the expert after theirs, and what it makes of them comes back as if it were theirs."""

    def dispatch(self, x_GxExPxM: Any) -> Any:
        """On by one."""
        return super().dispatch(jnp.roll(x_GxExPxM, 1, axis=1))

    def combine(self, y_GxExPxM: Any) -> Any:
        """And back by one."""
        return jnp.roll(super().combine(y_GxExPxM), -1, axis=1)


class ByStride(Exchange):
    """The all-to-all splits the experts the wrong way: dealt out to the devices in turn, not a block for each."""

    def dispatch(self, x_GxExPxM: Any) -> Any:
        """Expert e goes to device e modulo their number."""
        n, (G, E, P, M) = axis_size("expert"), x_GxExPxM.shape
        dealt = x_GxExPxM.reshape(G, E // n, n, P, M)
        return all_to_all(dealt, "expert", split_axis=2, concat_axis=0, tiled=True).reshape(-1, E // n, P, M)


@dataclass(frozen=True)
class Misdirects(MoE):
    """Tokens travel otherwise than the page has it."""

    exchange: type[Exchange] = Exchange

    def apply(self, parameters: Any, x_BxD: Any, layout: Any) -> Any:
        """By this exchange."""
        return super().apply(parameters, x_BxD, self.exchange())


def sums_experts(model: Any, parameters: Any, batch: Any) -> Any:
    """An expert's gradient is of all devices' losses: here it is their sum, not their mean."""
    loss, gradients = expert_parallel_shard_map.loss_and_gradients(model, parameters, batch)
    experts = {name: gradient * axis_size("expert") for name, gradient in gradients["experts"].items()}
    return loss, gradients | {"experts": experts}


def own_shard(gradient: Any, axes: Any) -> Any:
    """An expert's gradient of its own row of devices only."""
    if "experts" not in axes:
        return scatter_mean(gradient, axes)
    [(dimension, over)] = widths(axes)
    size = gradient.shape[dimension] // axis_size(over)
    return dynamic_slice_in_dim(gradient, axis_index(over) * size, size, dimension) / axis_size("expert")


def forgets_data(model: Any, parameters: Any, batch: Any) -> Any:
    """The experts' gradients are not summed over ``data``."""
    in_use = jax.tree.map(gather, dict(parameters), model.axes)
    loss, gradients = jax.value_and_grad(model.loss)(in_use, batch, Exchange())
    return pmean(loss, BOTH), jax.tree.map(own_shard, gradients, model.axes)


for name, network, page, axes, clauses in (
    ("healthy_expert_parallel", MoE(), expert_parallel_shard_map.PAGE, EXPERT, ()),
    ("capacity_ignored", IgnoresCapacity(), expert_parallel_shard_map.PAGE, EXPERT, ("NUM-2", "NUM-4", "COM-11")),
    ("capacity_by_device", GroupsByDevice(), expert_parallel_shard_map.PAGE, HALF, ("NUM-2", "NUM-4")),
    ("gates_of_one_device", ForgetsToNormalise(), expert_parallel_shard_map.PAGE, EXPERT, ("NUM-2", "NUM-4")),
    (
        "neighbours_expert",
        Misdirects(exchange=ToTheNeighbour),
        expert_parallel_shard_map.PAGE,
        EXPERT,
        ("NUM-2", "NUM-4"),
    ),
    ("all_to_all_split_by_stride", Misdirects(exchange=ByStride), expert_fsdp_shard_map.PAGE, WIDE, ("NUM-2", "NUM-4")),
):
    plant(name, Unchecked, page, axes, *clauses, network=network)

plant(
    "experts_summed",
    Unchecked,
    expert_parallel_shard_map.PAGE,
    EXPERT,
    "NUM-2",
    "NUM-3",
    network=MoE(),
    loss_and_gradients=sums_experts,
)
plant(
    "experts_not_summed_over_data",
    Unchecked,
    expert_fsdp_shard_map.PAGE,
    WIDE,
    "NUM-2",
    "COM-2",
    "COM-4",
    network=MoE(),
    loss_and_gradients=forgets_data,
)
plant("experts_by_storage_alone", StorageOnly, expert_fsdp.PAGE, WIDE, "COM-10", "COM-11", network=MoE())
