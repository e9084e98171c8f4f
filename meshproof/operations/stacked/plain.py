"""Plain trees of stacked arrays, and a loop over layers by ``jax.lax.scan``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import NamedSharding, PartitionSpec

from meshproof.operations.stacked.plan import SHAPES, Plan, StackedLayers, Trees, batch_on, layer


def train(plan: Plan, optimizer: optax.GradientTransformation) -> Iterator[tuple[str, Trees]]:
    """The optimizer's state is what ``optimizer.init`` makes of placed parameters."""
    mesh, draws = plan.mesh(), np.random.default_rng(1)
    parameters = {
        name: jax.device_put(
            (0.1 * draws.normal(size=plan.shape(name))).astype(np.float32), NamedSharding(mesh, plan.spec(name))
        )
        for name in SHAPES
    }
    with jax.set_mesh(mesh):
        state = optimizer.init(parameters)
        yield "after init", {"parameters": parameters, "optimizer_state": state}
        step, x_BxD = jax.jit(lambda *given: train_step(optimizer, *given)), batch_on(mesh)
        for _ in range(2):
            parameters, state, gradients = step(parameters, state, x_BxD)
    yield "after two steps", {"parameters": parameters, "gradients": gradients, "optimizer_state": state}


def train_step(optimizer: optax.GradientTransformation, parameters: Any, state: Any, x_BxD: jax.Array) -> Any:
    """One step on the mean square of what the layers make of a batch."""

    def loss(parameters: Any) -> jax.Array:
        rows = PartitionSpec("data")
        y_BxD, _ = jax.lax.scan(lambda x, one: (placed(layer(x, one), rows), None), placed(x_BxD, rows), parameters)
        return jnp.mean(y_BxD**2)

    gradients = jax.grad(loss)(parameters)
    updates, state = optimizer.update(gradients, state, parameters)
    return optax.apply_updates(parameters, updates), state, gradients


def placed(x: jax.Array, spec: PartitionSpec) -> jax.Array:
    """The array with that layout."""
    return jax.lax.with_sharding_constraint(x, spec)


PLAIN = StackedLayers("plain", train)
