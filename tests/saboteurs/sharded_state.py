"""Faults in strategies that shard optimizer state, gradients and parameters: ZeRO-1, ZeRO-2, HSDP, FSDP with TP."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
from jax.lax import axis_index, dynamic_update_slice_in_dim, optimization_barrier, pmean, psum
from jax.sharding import PartitionSpec

from reference_impl.compat import varying
from reference_impl.forms.annotated import JaxForm
from reference_impl.forms.hybrid import Hybrid
from reference_impl.forms.manual import Manual
from reference_impl.mapping import Mapping
from reference_impl.models.layout import Layout
from reference_impl.shards import Shards
from reference_impl.strategies import (
    data_parallel_shard_map,
    fsdp_shard_map,
    fsdp_tensor_parallel_shard_map,
    hsdp,
    hsdp_shard_map,
    tensor_parallel_shard_map,
    zero1,
    zero1_shard_map,
    zero2,
    zero2_shard_map,
)
from tests.saboteurs.layout import storing
from tests.saboteurs.planting import BOTH, DATA, MODEL, Unchecked, plant

HYBRID = {"replica": 2, "data": 4}


def keeps_what_it_updated(model: Any, optimize: Any, parameters: Any, state: Any, gradients: Any) -> Any:
    """ZeRO-1 that forgets to gather: every device is up to date with its own shard only."""
    shards = Shards(model, zero1.PAGE.optimizer, "data")
    updated, state = optimize(shards.own(parameters), state, shards.own(gradients))

    def one(whole: Any, part: Any) -> Any:
        if whole.shape == part.shape:
            return part
        dimension = next(i for i in range(whole.ndim) if whole.shape[i] != part.shape[i])
        return dynamic_update_slice_in_dim(whole, part, axis_index("data") * part.shape[dimension], dimension)

    return jax.tree.map(one, dict(parameters), updated), state


def gathers_old_and_new(model: Any, optimize: Any, parameters: Any, state: Any, gradients: Any) -> Any:
    """ZeRO-1 that gathers twice."""
    updated, state = zero1_shard_map.update(model, optimize, parameters, state, gradients)
    shards = Shards(model, zero1.PAGE.optimizer, "data")
    return shards.gather_equal(optimization_barrier(shards.own(updated))), state


class Neighbours(Shards):
    """Shards that are cut one place further."""

    def cut(self, whole: Any, dimension: int) -> Any:
        """The next device's."""
        length = whole.shape[dimension] // self.size
        start = (axis_index(self.over) + 1) % self.size * length
        return jax.lax.dynamic_slice_in_dim(whole, start, length, dimension)


def updates_by_the_neighbours_gradient(model: Any, optimize: Any, parameters: Any, state: Any, gradients: Any) -> Any:
    """ZeRO-1 whose gradients are cut at other places than its parameters."""
    shards, neighbours = Shards(model, zero1.PAGE.optimizer, "data"), Neighbours(model, zero1.PAGE.optimizer, "data")
    updated, state = optimize(shards.own(parameters), state, neighbours.own(gradients))
    return shards.gather_equal(updated), state


def all_reduces(model: Any, parameters: Any, batch: Any) -> Any:
    """ZeRO-2 that reduces whole gradients, and then keeps a shard."""
    loss, gradients = data_parallel_shard_map.loss_and_gradients(model, parameters, batch)
    return loss, Shards(model, zero2_shard_map.PAGE.gradients, "data").own(gradients)


class WholeGradients(JaxForm):
    """ZeRO-2 by name: every device has every gradient."""

    @cached_property
    def gradients(self) -> Any:
        """Whole."""
        return self.compile(
            lambda state, batch: self.loss_and_gradients(state.parameters, batch)[1],
            out_shardings=self.on_mesh(PartitionSpec()),
        )


plant(
    "zero1_not_gathered", Unchecked, zero1_shard_map.PAGE, DATA, "COM-3", "NUM-3", "NUM-6", update=keeps_what_it_updated
)
plant("zero1_gathered_twice", Unchecked, zero1_shard_map.PAGE, DATA, "COM-3", "COM-11", update=gathers_old_and_new)
plant("zero1_other_shard", Manual, zero1_shard_map.PAGE, DATA, "NUM-3", update=updates_by_the_neighbours_gradient)
plant(
    "zero1_momentum_on_other_axis", storing(optimizer=Mapping(mlp="data")), zero1.PAGE, DATA, "SHD-2", "SHD-3", "MEM-1"
)
plant("zero2_all_reduces", Manual, zero2_shard_map.PAGE, DATA, "COM-4", loss_and_gradients=all_reduces)
plant("zero2_gradients_whole", WholeGradients, zero2.PAGE, DATA, "MEM-1")


def between_groups(average: Any) -> Any:
    """HSDP whose groups are synchronized another way."""

    def loss_and_gradients(model: Any, parameters: Any, batch: Any) -> Any:
        own = jax.tree.map(lambda shard: varying(shard, "replica"), parameters)
        loss, gradients = fsdp_shard_map.loss_and_gradients(model, own, batch)
        return pmean(loss, "replica"), average(gradients)

    return loss_and_gradients


def never(gradients: Any) -> Any:
    """Not at all."""
    return gradients


def summed(gradients: Any) -> Any:
    """By their sum."""
    return psum(gradients, "replica")


plant("healthy_hsdp", Hybrid, hsdp.PAGE, HYBRID)
NEVER, SUMMED = between_groups(never), between_groups(summed)
plant("replicas_apart", Unchecked, hsdp_shard_map.PAGE, HYBRID, "COM-7", "NUM-2", "NUM-6", loss_and_gradients=NEVER)
plant("replicas_summed", Manual, hsdp_shard_map.PAGE, HYBRID, "NUM-2", "NUM-3", loss_and_gradients=SUMMED)
plant("hsdp_by_layout_alone", JaxForm, hsdp.PAGE, HYBRID, "COM-7", "COM-4", "COM-11")


class TransposedByType(Layout):
    """f and g that are each other's transpose only as long as JAX checks what varies."""

    def enter(self, x: Any, into: str) -> Any:
        """Identity; its transpose is a sum, if checked."""
        return varying(x, "model") if into == "mlp" else x

    def leave(self, y: Any, over: str, axes: Any) -> Any:
        """A sum; its transpose is the identity, if checked."""
        return psum(y, "model") if over == "mlp" else y


class ReducesOverData(tensor_parallel_shard_map.Megatron):
    """Partial products that are summed with other examples' products."""

    def leave(self, y: Any, over: str, axes: Any) -> Any:
        """Over the wrong axis."""
        return psum(y, "data") if over == "mlp" else y


def by(layout: Layout) -> dict[str, Any]:
    """Tensor parallelism with this layout."""

    def loss(model: Any, parameters: Any, batch: Any) -> Any:
        return model.loss(parameters, batch, layout)

    return {"loss": loss, "loss_and_gradients": lambda *given: jax.value_and_grad(loss, argnums=1)(*given)}


def over_data(model: Any, parameters: Any, batch: Any) -> Any:
    """FSDP and tensor parallelism whose activations are reduced over data."""
    shards = Shards(model, fsdp_tensor_parallel_shard_map.PAGE.parameters, "data")
    loss, gradients = jax.value_and_grad(model.loss)(shards.gather(parameters), batch, ReducesOverData())
    return pmean(loss, "data"), shards.scatter_mean(gradients)


plant("transposed_by_type", Manual, tensor_parallel_shard_map.PAGE, MODEL, "NUM-7", **by(TransposedByType()))
plant(
    "activations_over_data",
    Unchecked,
    fsdp_tensor_parallel_shard_map.PAGE,
    BOTH,
    "COM-5",
    "COM-6",
    "NUM-2",
    loss_and_gradients=over_data,
)


def ranks_parameters(model: Any, parameters: Any, batch: Any) -> Any:
    """FSDP that ranks all gathered parameters in one piece, for a log: no byte moves more, but all are held at once."""
    shards = Shards(model, fsdp_shard_map.PAGE.parameters, "data")
    whole = shards.gather(parameters)
    values = jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(whole)])
    first = values[jnp.argsort(jnp.argsort(values))][0]
    loss, gradients = jax.value_and_grad(model.loss)(whole, batch, Layout())
    return pmean(loss + 0 * first, "data"), shards.scatter_mean(gradients)


plant("parameters_ranked", Unchecked, fsdp_shard_map.PAGE, DATA, "MEM-4", loss_and_gradients=ranks_parameters)
