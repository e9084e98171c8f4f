"""A fault that is little more than rounding, in code that writes float32 where its own run in float64 would show it."""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import PartitionSpec as P

from tests.healthy.idioms import Trainer
from tests.saboteurs.planting import plant_stranger


class SafeMean(Trainer):
    """Divides by a count that is never 0, for a constant is added to it."""

    name = "healthy_safe_mean"
    constant = 0.0

    def __init__(self, devices: int = 8) -> None:
        super().__init__(devices)
        self.loss = jax.jit(lambda state, batch: self.both(state["parameters"], batch)[0])
        self.gradients = jax.jit(lambda state, batch: self.both(state["parameters"], batch)[1])

    def local_mean(self, w: Any, batch: Any) -> Any:
        """Of a device's rows, in float32 whatever they are."""
        rows = jnp.sum((jnp.tanh(batch["x"] @ w["hidden"]) @ w["out"] - batch["y"]) ** 2, axis=1).astype(jnp.float32)
        return jnp.sum(rows) / (jnp.float32(len(rows)) + self.constant)

    def both(self, w: Any, batch: Any) -> Any:
        """The mean of all devices, and its gradients."""

        def local(w: Any, batch: Any) -> Any:
            varying = jax.lax.pcast(w, "data", to="varying")
            return jax.lax.pmean(jax.value_and_grad(self.local_mean)(varying, batch), "data")

        return jax.shard_map(local, mesh=self.mesh, in_specs=(P(), P("data")), out_specs=P())(w, batch)

    def step(self, state: Any, batch: Any) -> Any:
        """One update."""
        value, gradients = self.both(state["parameters"], batch)
        updates, optimizer = self.optimizer.update(gradients, state["optimizer"], state["parameters"])
        parameters = optax.apply_updates(state["parameters"], updates)
        return {"parameters": parameters, "optimizer": optimizer}, {"loss": value}


class EpsilonOnEachDevice(SafeMean):
    """On a mesh each device has fewer rows, beside which the constant is more."""

    name = "epsilon_on_each_device"
    constant = 3e-5


plant_stranger(SafeMean())
plant_stranger(EpsilonOnEachDevice(), "NUM-4")
