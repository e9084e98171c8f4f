"""A trainer under ``pmap``, as Flax's own examples had it: what `meshproof adopt` is tried on."""

import jax
import numpy as np
import optax
from flax.jax_utils import replicate
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from tests.implementations.unadopted import ADAM, host_batch, plain_loss, start


class Stacked:
    """Under ``pmap``, with a copy of everything for each device."""

    def __init__(self, devices=8):
        self.mesh = Mesh(np.array(jax.devices()[:devices]), ("batch",))
        own = list(self.mesh.devices)
        self.train_step = jax.pmap(self.step, "batch", devices=own, out_axes=(0, None), donate_argnums=0)

    def init(self, key):
        """As Flax stacks it."""
        params = start(key)
        return replicate({"params": params, "opt_state": ADAM.init(params)}, list(self.mesh.devices), "batch")

    def batches(self, count):
        """On the host."""
        return [host_batch(seed) for seed in range(count)]

    def shard_batch(self, batch):
        """A part for each device."""
        parts = {name: rows.reshape(self.mesh.size, -1, *rows.shape[1:]) for name, rows in batch.items()}
        return jax.device_put(parts, NamedSharding(self.mesh, P("batch")))

    @staticmethod
    def step(state, batch):
        """The mean of all devices."""
        if batch["x"].ndim != 2:
            raise ValueError(
                f"x of shape {batch['x'].shape} on a device, expected (examples, 16): let a batch be placed"
            )
        mean = jax.lax.pmean(jax.value_and_grad(plain_loss)(state["params"], batch), "batch")
        updates, optimizer = ADAM.update(mean[1], state["opt_state"], state["params"])
        return {"params": optax.apply_updates(state["params"], updates), "opt_state": optimizer}, {"loss": mean[0]}
