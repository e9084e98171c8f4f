"""Layers that Flax NNX stacks, by ``nnx.vmap`` or ``nnx.scan`` over their constructor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax.sharding import PartitionSpec

from meshproof.operations.stacked.plan import SHAPES, Plan, StackedLayers, Trees, batch_on, layer


class Layer(nnx.Module):
    """One layer, annotated with the axes of its own parameters."""

    def __init__(self, plan: Plan, rngs: nnx.Rngs):
        for name, shape in SHAPES.items():
            made = nnx.with_partitioning(nnx.initializers.normal(0.1), plan.own_spec(name))
            setattr(self, name, nnx.Param(made(rngs.params(), shape)))

    def __call__(self, x_BxD: jax.Array) -> jax.Array:
        """(B, D) to (B, D)."""
        return layer(x_BxD, {name: getattr(self, name)[...] for name in SHAPES})


Maker = Callable[[Plan], Any]


def by_vmap(plan: Plan) -> Any:
    """As the guides do, with the name of the axis that the layers add."""
    stack = nnx.vmap(
        lambda key: Layer(plan, nnx.Rngs(key)),
        in_axes=0,
        out_axes=0,
        transform_metadata={nnx.PARTITION_NAME: plan.over},
    )
    return stack(jax.random.split(jax.random.key(0), plan.layers))


def by_vmap_unnamed(plan: Plan) -> Any:
    """Without a word about the axis that the layers add: it is not sharded."""
    stack = nnx.vmap(lambda key: Layer(plan, nnx.Rngs(key)), in_axes=0, out_axes=0)
    return stack(jax.random.split(jax.random.key(0), plan.layers))


def by_scan(plan: Plan) -> Any:
    """``nnx.scan`` over the constructor."""
    stack = nnx.scan(
        lambda carry, key: (carry, Layer(plan, nnx.Rngs(key))),
        in_axes=(nnx.Carry, 0),
        out_axes=(nnx.Carry, 0),
        transform_metadata={nnx.PARTITION_NAME: plan.over},
    )
    return stack(jnp.zeros(()), jax.random.split(jax.random.key(0), plan.layers))[1]


def made_by(make: Maker) -> Callable[[Plan, optax.GradientTransformation], Iterator[tuple[str, Trees]]]:
    """The training of layers that were made so."""

    def train(plan: Plan, transformation: optax.GradientTransformation) -> Iterator[tuple[str, Trees]]:
        mesh = plan.mesh()
        with jax.set_mesh(mesh):
            model = nnx.jit(lambda: make(plan))()
            optimizer = nnx.Optimizer(model, transformation, wrt=nnx.Param)
            yield "after init", trees(model, optimizer)
            x_BxD, step = batch_on(mesh), nnx.jit(train_step)
            for _ in range(2):
                gradients = step(model, optimizer, x_BxD)
            yield "after two steps", {**trees(model, optimizer), "gradients": pure(gradients)}

    return train


def train_step(model: Any, optimizer: Any, x_BxD: jax.Array) -> Any:
    """One step, in place."""
    gradients = nnx.grad(lambda model: jnp.mean(apply(model, x_BxD) ** 2))(model)
    optimizer.update(model, gradients)
    return gradients


def apply(model: Any, x_BxD: jax.Array) -> jax.Array:
    """All layers, one after the other."""
    rows = PartitionSpec("data")
    graph, state = nnx.split(model)

    def one(x: jax.Array, state: Any) -> tuple[jax.Array, None]:
        return jax.lax.with_sharding_constraint(nnx.merge(graph, state)(x), rows), None

    return jax.lax.scan(one, jax.lax.with_sharding_constraint(x_BxD, rows), state)[0]


def trees(model: Any, optimizer: Any) -> Trees:
    """Parameters and optimizer state."""
    return {"parameters": pure(nnx.state(model, nnx.Param)), "optimizer_state": pure(nnx.state(optimizer.opt_state))}


def pure(state: Any) -> Any:
    """A state without its variables."""
    return nnx.to_pure_dict(state) if isinstance(state, nnx.State) else state


VMAPPED = StackedLayers("nnx_vmap", made_by(by_vmap))
UNNAMED = StackedLayers("nnx_vmap_unnamed", made_by(by_vmap_unnamed))
SCANNED = StackedLayers("nnx_scan", made_by(by_scan))
