"""A trainer whose first steps show little: its rate hardly rises from 0, and its loader hands over microbatches."""

import jax
import jax.numpy as jnp
import optax

from tests.implementations.unadopted import host_batch, place, plain_loss, start

SLOW = optax.chain(optax.trace(0.9), optax.scale_by_schedule(lambda count: -0.1 * count / 200_000))


class HardlyRises:
    """From a last matrix of zeros, three steps change no bit of the first one. A batch is (2, 32, …), split by rows."""

    optimizer = SLOW

    def __init__(self):
        self.train_step = jax.jit(self.step, donate_argnums=0)

    def init(self, key):
        """With the optimizer's state."""
        params = start(key)
        params["out"] = jnp.zeros_like(params["out"])
        return place({"params": params, "opt_state": self.optimizer.init(params)})

    def batches(self, count):
        """Rows as on the host."""
        return map(host_batch, range(count))

    def shard_batch(self, batch):
        """In two microbatches."""
        return {name: place(rows.reshape(2, -1, rows.shape[1]), None, "data") for name, rows in batch.items()}

    def step(self, state, batch):
        """Over both microbatches at once."""
        loss, gradients = jax.value_and_grad(plain_loss)(state["params"], batch)
        updates, optimizer = self.optimizer.update(gradients, state["opt_state"])
        return {"params": optax.apply_updates(state["params"], updates), "opt_state": optimizer}, {"loss": loss}


class KeepsNothing(HardlyRises):
    """The same without moments: nothing tells that the first matrix is trained."""

    optimizer = optax.scale_by_schedule(lambda count: -0.1 * count / 200_000)
