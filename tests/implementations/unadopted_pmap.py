"""A trainer under ``pmap``, as Flax's own examples had it: what `meshproof adopt` is tried on."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.jax_utils import replicate
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from tests.implementations.unadopted import ADAM, host_batch, plain_loss, squared, start


class Stacked:
    """Under ``pmap``, with a copy of everything for each device."""

    objective = staticmethod(plain_loss)

    def __init__(self, devices=8):
        self.mesh = Mesh(np.array(jax.devices()[:devices]), ("batch",))
        own = list(self.mesh.devices)
        self.train_step = jax.pmap(self.step, "batch", devices=own, out_axes=(0, None), donate_argnums=0)

    def init(self, key):
        """As Flax stacks it."""
        params = self.start(key)
        return replicate({"params": params, "opt_state": ADAM.init(params)}, list(self.mesh.devices), "batch")

    def start(self, key):
        """The parameters of one device."""
        return start(key)

    def batches(self, count):
        """On the host."""
        return [host_batch(seed) for seed in range(count)]

    def shard_batch(self, batch):
        """A part for each device."""
        parts = {name: rows.reshape(self.mesh.size, -1, *rows.shape[1:]) for name, rows in batch.items()}
        return jax.device_put(parts, NamedSharding(self.mesh, P("batch")))

    def step(self, state, batch):
        """The mean of all devices."""
        if batch["x"].ndim != 2:
            raise ValueError(
                f"x of shape {batch['x'].shape} on a device, expected (examples, 16): let a batch be placed"
            )
        mean = jax.lax.pmean(jax.value_and_grad(self.objective)(state["params"], batch), "batch")
        updates, optimizer = ADAM.update(mean[1], state["opt_state"], state["params"])
        return {"params": optax.apply_updates(state["params"], updates), "opt_state": optimizer}, {"loss": mean[0]}


class AddsBiases(Stacked):
    """The same with two biases that are added, as a layer of inputs and one of times have: of one gradient."""

    def start(self, key):
        """Both 0."""
        return start(key) | {name: jnp.zeros(32) for name in ("bias", "time_bias")}

    @staticmethod
    def objective(params, batch):
        """Of a hidden layer."""
        hidden = batch["x"] @ params["hidden"] + params["bias"] + params["time_bias"]
        return squared(jnp.tanh(hidden) @ params["out"], batch)
