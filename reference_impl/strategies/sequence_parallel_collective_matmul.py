"""Sequence parallel by hand, asynchronous: a part of the sequence is multiplied while the next one is on its way.

    parameters       heads→model, mlp→model, position→model
    gradients        heads→model, mlp→model, position→model
    optimizer state  heads→model, mlp→model, position→model
    batch            batch→data
    forward moves    collective-permute of activations over model; all-reduce of metrics over data×model
    step moves       collective-permute of activations over model; all-reduce of gradients over data;
                     all-reduce of gradients over data×model; all-reduce of metrics over data×model

``sequence_parallel_shard_map`` with rings instead of all-gathers and reduce-scatters, one hop for each product: the
same bytes, and a product to compute during each hop. Also known as asynchronous tensor parallelism (Wang
et al. 2023, "Overlap Communication with Dependent Computation via Decomposition in Large Deep Learning Models").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import jax
import jax.numpy as jnp
from jax.lax import axis_index, axis_size, dynamic_slice_in_dim, ppermute

from meshproof.contract import Batch, Tree
from reference_impl.mapping import Axes
from reference_impl.models import Model
from reference_impl.models.layout import Layout
from reference_impl.page import Budget, all_reduce, collective_permute
from reference_impl.strategies import sequence_parallel_shard_map
from reference_impl.strategies.sequence_parallel_shard_map import BOTH, METRICS

ACTIVATIONS = collective_permute("activations", over="model")

TABLE = replace(
    sequence_parallel_shard_map.TABLE,
    name="sequence_parallel_collective_matmul",
    communication=Budget(
        forward=[ACTIVATIONS, METRICS],
        step=[ACTIVATIONS, all_reduce("gradients", over="data"), all_reduce("gradients", over=BOTH), METRICS],
    ),
)


class Decomposed(Layout):
    """Between regions each device has its own part of the sequence, within them its own heads."""

    def product(self, subscripts: str, x: jax.Array, w: jax.Array, over: str, axes: Axes) -> jax.Array:
        """The product with one kernel, at the entry of a region or at its exit."""
        return multiply_scatter(subscripts, x, w) if TABLE.compute.of(over) else gather_multiply(subscripts, x, [w])[0]

    def products(
        self, subscripts: str, x: jax.Array, kernels: Sequence[jax.Array], over: str, axes: Axes
    ) -> list[jax.Array]:
        """The products with all kernels, of each part of the sequence before it is sent on."""
        return gather_multiply(subscripts, x, kernels)


def gather_multiply(subscripts: str, x_BxTxD: jax.Array, kernels: Sequence[jax.Array]) -> list[jax.Array]:
    """The products of each kernel with the whole sequence, of which each device has T tokens.

    The parts arrive from the devices before this one; its own comes first.
    """
    devices, length = axis_size("model"), x_BxTxD.shape[1]
    parts = []
    for hop in range(devices):
        parts.append([jnp.einsum(subscripts, x_BxTxD, w) for w in kernels])
        if hop < devices - 1:
            x_BxTxD = from_previous_device(x_BxTxD)
    own_last = (jnp.concatenate(part, axis=1) for part in zip(*reversed(parts), strict=True))
    return [jnp.roll(y, (axis_index("model") + 1) * length, axis=1) for y in own_last]


def multiply_scatter(subscripts: str, x_BxTxF: jax.Array, w: jax.Array) -> jax.Array:
    """This device's part, T/model tokens, of the sum of all devices' products with their kernels.

    Each part of the sum starts at the device after its owner; every device on the way to the owner adds its product.
    """
    devices, here, length = axis_size("model"), axis_index("model"), x_BxTxF.shape[1] // axis_size("model")

    def partial_product(hop: int) -> jax.Array:
        first = (here - hop - 1) % devices * length
        return jnp.einsum(subscripts, dynamic_slice_in_dim(x_BxTxF, first, length, axis=1), w)

    total = partial_product(0)
    for hop in range(1, devices):
        total = from_previous_device(total) + partial_product(hop)
    return total


def from_previous_device(x: jax.Array) -> jax.Array:
    """The previous device's ``x``."""
    devices = axis_size("model")
    return ppermute(x, "model", [(i, (i + 1) % devices) for i in range(devices)])


def loss(model: Model, parameters: Tree, batch: Batch) -> jax.Array:
    """The mean of the devices' mean losses of their own tokens."""
    return sequence_parallel_shard_map.loss(model, parameters, batch, Decomposed())


def loss_and_gradients(model: Model, parameters: Tree, batch: Batch) -> tuple[jax.Array, Tree]:
    """Every device differentiates its own loss; the gradients are averaged over those that share a parameter."""
    return sequence_parallel_shard_map.loss_and_gradients(model, parameters, batch, Decomposed())


PAGE = TABLE.by_hand(loss, loss_and_gradients)
