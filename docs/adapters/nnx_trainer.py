"""An NNX trainer under FSDP: ``pytest suites/ --impl docs.adapters.nnx_trainer``."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from meshproof.contract import Contract

LAYOUT = {"*bias": PartitionSpec(), "*kernel": PartitionSpec("data")}


class Network(nnx.Module):
    def __init__(self, rngs):
        self.hidden, self.out = nnx.Linear(16, 32, rngs=rngs), nnx.Linear(32, 8, rngs=rngs)


def loss(model, batch):
    return jnp.mean((model.out(nnx.tanh(model.hidden(batch["x"]))) - batch["y"]) ** 2)


@nnx.jit(donate_argnums=0)
def train_step(state, batch):
    model, optimizer = state
    value, gradients = nnx.value_and_grad(loss)(model, batch)
    optimizer.update(model, gradients)
    return state, {"loss": value}


class FSDP:
    name, framework, model = "fsdp", "nnx", "regression"
    contract = Contract(parameters=LAYOUT, optimizer_state=LAYOUT | {"count": PartitionSpec()})
    train_step = staticmethod(train_step)

    def __init__(self, devices=8):
        self.mesh_axes = {"data": devices}

    @property
    def mesh(self):
        return Mesh(np.array(jax.devices()[: self.mesh_axes["data"]]), ("data",))

    def place(self, array):
        return jax.device_put(array, NamedSharding(self.mesh, PartitionSpec(*["data"] * (array.ndim > 1))))

    def init(self, key):
        return self.load(nnx.to_pure_dict(nnx.state(Network(nnx.Rngs(key)))))

    def load(self, parameters):
        model = Network(nnx.Rngs(0))
        nnx.update(model, parameters)
        return jax.tree.map(self.place, (model, nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)))

    def batches(self, count):
        draws = np.random.default_rng(0)
        return [
            {"x": draws.standard_normal((64, 16), "f"), "y": draws.standard_normal((64, 8), "f")} for _ in range(count)
        ]

    def shard_batch(self, batch):
        return jax.tree.map(self.place, batch)

    def parameters(self, state):
        return nnx.to_pure_dict(nnx.state(state[0]))

    def optimizer_state(self, state):
        adam = state[1].opt_state[0]
        return {"count": adam.count.get_value(), "mu": nnx.to_pure_dict(adam.mu), "nu": nnx.to_pure_dict(adam.nu)}

    def single_device(self, dtype):
        return FSDP(devices=1)


def strategies():
    return [FSDP()]
