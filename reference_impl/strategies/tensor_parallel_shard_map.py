"""Tensor parallel by hand: Megatron's conjugate pair f and g around every column-row pair of layers.

    parameters       heads→model, mlp→model
    gradients        heads→model, mlp→model
    optimizer state  heads→model, mlp→model
    batch            whole
    forward moves    all-reduce of activations over model
    step moves       all-reduce of activations over model

f, before the column-parallel layer: identity forward, all-reduce backward. g, after the row-parallel layer:
all-reduce forward, identity backward. With ``check_vma`` JAX would transpose ``varying`` (f) to ``psum`` (g) and back
by itself; written out, f and g are right without it too.
"""

from __future__ import annotations

from dataclasses import replace

import jax
from jax.lax import psum

from meshproof.contract import Batch, Tree
from reference_impl.compat import varying
from reference_impl.mapping import Axes
from reference_impl.models import Model
from reference_impl.models.layout import Layout
from reference_impl.strategies import tensor_parallel

TABLE = replace(tensor_parallel.PAGE, name="tensor_parallel_shard_map")


@jax.custom_vjp
def f(x: jax.Array) -> jax.Array:
    """The activation, unchanged; its gradient is the sum of the devices' gradients."""
    return varying(x, "model")


@jax.custom_vjp
def g(y: jax.Array) -> jax.Array:
    """The sum of the devices' partial products; the gradient of each is that of the sum."""
    return psum(y, "model")  # type: ignore[no-any-return]


f.defvjp(lambda x: (f(x), None), lambda _, gradient: (psum(gradient, "model"),))
g.defvjp(lambda y: (g(y), None), lambda _, gradient: (varying(gradient, "model"),))


class Megatron(Layout):
    """f and g, where a kernel is split."""

    def enter(self, x: jax.Array, into: str) -> jax.Array:
        """f, where the kernel's columns are split."""
        return f(x) if TABLE.compute.of(into) else x

    def leave(self, y: jax.Array, over: str, axes: Axes) -> jax.Array:
        """g, where the kernel's rows are split."""
        return g(y) if TABLE.compute.of(over) else y


def loss(model: Model, parameters: Tree, batch: Batch) -> jax.Array:
    """The loss of the whole batch, which every device sees."""
    with jax.named_scope("forward"):
        return model.loss(parameters, batch, Megatron())


def loss_and_gradients(model: Model, parameters: Tree, batch: Batch) -> tuple[jax.Array, Tree]:
    """Gradients of split parameters are those of this device's shard; the others are equal on all devices already."""
    return jax.value_and_grad(loss, argnums=1)(model, parameters, batch)


PAGE = TABLE.by_hand(loss, loss_and_gradients)
