"""A plain optax loop under data parallelism: ``pytest suites/ --impl docs.adapters.optax_loop``."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from meshproof.contract import Communication, Contract

OPTIMIZER = optax.sgd(0.1, momentum=0.9)
WHOLE, ROWS = {"*": PartitionSpec()}, {"*": PartitionSpec("data")}
LAYOUTS = {"parameters": WHOLE, "gradients": WHOLE, "optimizer_state": WHOLE, "batch": ROWS}
GRADIENTS = Communication("all-reduce", ("data",), "gradients", 4 * (16 * 32 + 32 * 8))
LOSS = Communication("all-reduce", ("data",), "metrics", 4)


def loss(parameters, batch):
    return jnp.mean((jnp.tanh(batch["x"] @ parameters["w_in"]) @ parameters["w_out"] - batch["y"]) ** 2)


@jax.jit(donate_argnums=0)
def train_step(state, batch):
    value, gradients = jax.value_and_grad(loss)(state["parameters"], batch)
    updates, optimizer = OPTIMIZER.update(gradients, state["optimizer"])
    return {"parameters": optax.apply_updates(state["parameters"], updates), "optimizer": optimizer}, {"loss": value}


class DataParallel:
    name, framework, model = "data_parallel", "jax", "regression"
    contract = Contract(**LAYOUTS, forward=(LOSS,), step=(GRADIENTS, LOSS))
    train_step = staticmethod(train_step)
    loss = staticmethod(jax.jit(lambda state, batch: loss(state["parameters"], batch)))
    gradients = staticmethod(jax.jit(lambda state, batch: jax.grad(loss)(state["parameters"], batch)))

    def __init__(self, devices=8):
        self.mesh_axes = {"data": devices}

    @property
    def mesh(self):
        return Mesh(np.array(jax.devices()[: self.mesh_axes["data"]]), ("data",))

    def init(self, key):
        return self.load({"w_in": jax.random.normal(key, (16, 32)) / 4, "w_out": jax.random.normal(key, (32, 8)) / 6})

    def load(self, parameters):
        parameters = jax.device_put(parameters, NamedSharding(self.mesh, PartitionSpec()))
        return {"parameters": parameters, "optimizer": OPTIMIZER.init(parameters)}

    def batches(self, count):
        draws = np.random.default_rng(0)
        return [
            {"x": draws.standard_normal((64, 16), "f"), "y": draws.standard_normal((64, 8), "f")} for _ in range(count)
        ]

    def shard_batch(self, batch):
        return jax.device_put(batch, NamedSharding(self.mesh, PartitionSpec("data")))

    def parameters(self, state):
        return state["parameters"]

    def optimizer_state(self, state):
        return {"momentum": state["optimizer"][0].trace}

    def single_device(self, dtype):
        return DataParallel(devices=1)


def strategies():
    return [DataParallel()]
