"""NNX modules that a jitted ``init`` makes and shards: nothing is said of their state but what it returns."""

from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from meshproof.contract import Contract

OPTIMIZER = optax.adam(1e-3)
ROWS = PartitionSpec("data")


class Network(nnx.Module):
    """One layer."""

    def __init__(self, rngs):
        self.layer = nnx.Linear(256, 128, use_bias=False, rngs=rngs)


class Modules:
    """FSDP by constraints."""

    name, framework, model = "modules", "nnx", "layer"
    contract = Contract(
        parameters={"*": ROWS}, optimizer_state={"count": PartitionSpec(), "*": ROWS}, batch={"*": ROWS}
    )

    def __init__(self):
        self.mesh_axes = {"data": 8}

    @property
    def mesh(self):
        """Of the devices that JAX names."""
        return Mesh(np.array(jax.devices()), ("data",))

    @cached_property
    def init(self):
        """A model and its optimizer, sharded in the program that makes them."""

        def create(key):
            model = Network(nnx.Rngs(key))
            made = model, nnx.Optimizer(model, OPTIMIZER, wrt=nnx.Param)
            state = nnx.state(made)
            specs = jax.tree.map(lambda leaf: ROWS if leaf.ndim else PartitionSpec(), state)
            where = jax.tree.map(lambda spec: NamedSharding(self.mesh, spec), specs)
            nnx.update(made, jax.lax.with_sharding_constraint(state, where))
            return made

        return nnx.jit(create)

    @cached_property
    def train_step(self):
        """One update of both."""

        def step(state, batch):
            model, optimizer = state
            loss, gradients = nnx.value_and_grad(lambda model: jnp.mean(model.layer(batch["x"]) ** 2))(model)
            optimizer.update(model, gradients)
            return state, {"loss": loss}

        return nnx.jit(step, donate_argnums=0)

    def batches(self, count):
        """64 rows."""
        return [{"x": np.ones((64, 256), np.float32)}] * count

    def parameters(self, state):
        """By name."""
        return nnx.to_pure_dict(nnx.state(state[0], nnx.Param))

    def optimizer_state(self, state):
        """Adam's."""
        return nnx.to_pure_dict(nnx.state(state[1]))["opt_state"][0]
