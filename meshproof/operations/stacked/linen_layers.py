"""Layers that Flax Linen stacks, by ``nn.scan``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax.training.train_state import TrainState

from meshproof.operations.stacked.plan import SHAPES, Plan, StackedLayers, Trees, batch_on, layer


class Layer(nn.Module):
    """One layer, annotated with the axes of its own parameters."""

    plan: Plan

    @nn.compact  # type: ignore[untyped-decorator]
    def __call__(self, x_BxD: jax.Array, _: None) -> tuple[jax.Array, None]:
        """The carry of a scan."""
        own = {
            name: self.param(name, nn.with_partitioning(nn.initializers.normal(0.1), self.plan.own_spec(name)), shape)
            for name, shape in SHAPES.items()
        }
        return layer(x_BxD, own), None


def train(plan: Plan, optimizer: optax.GradientTransformation) -> Iterator[tuple[str, Trees]]:
    """The whole state is initialized on its declared axes, as Linen's guide does."""
    mesh = plan.mesh()
    stack = nn.scan(
        Layer,
        variable_axes={"params": 0},
        split_rngs={"params": True},
        length=plan.layers,
        metadata_params={nn.PARTITION_NAME: plan.over},
    )(plan)

    def init(key: jax.Array, x_BxD: jax.Array) -> TrainState:
        variables = stack.init(key, x_BxD, None)
        return TrainState.create(apply_fn=stack.apply, params=variables["params"], tx=optimizer)

    def step(state: Any, x_BxD: jax.Array) -> Any:
        def loss(parameters: Any) -> jax.Array:
            return jnp.mean(state.apply_fn({"params": parameters}, x_BxD, None)[0] ** 2)

        gradients = jax.grad(loss)(state.params)
        return state.apply_gradients(grads=gradients), gradients

    with jax.set_mesh(mesh):
        key, x_BxD = jax.random.key(0), batch_on(mesh)
        shardings = nn.get_sharding(jax.eval_shape(init, key, x_BxD), mesh)
        state = jax.jit(init, out_shardings=shardings)(key, x_BxD)
        yield "after init", trees(state)
        compiled = jax.jit(step)
        for _ in range(2):
            state, gradients = compiled(state, x_BxD)
    yield "after two steps", {**trees(state), "gradients": nn.unbox(gradients)}


def trees(state: Any) -> Trees:
    """Parameters and optimizer state, out of their boxes."""
    return {"parameters": nn.unbox(state.params), "optimizer_state": nn.unbox(state.opt_state)}


LINEN = StackedLayers("linen_scan", train)
