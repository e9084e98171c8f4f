"""The least that a trainer must bring: it is observed and recorded, and judged where no promise is needed."""

import jax
import jax.numpy as jnp
import numpy as np


class Trainer:
    """Linear regression on one device."""

    name, framework, model = "minimal", "jax", "line"
    mesh_axes = {"data": 1}  # noqa: RUF012

    @property
    def mesh(self):
        """One device."""
        return jax.sharding.Mesh(np.array(jax.devices()[:1]), ("data",))

    def init(self, key):
        """One weight."""
        return {"w": jnp.zeros(())}

    def batches(self, count):
        """Points on y = 2x."""
        return [
            {"x": np.arange(8, dtype=np.float32) + i, "y": 2 * np.arange(8, dtype=np.float32)} for i in range(count)
        ]

    def train_step(self, state, batch):
        """Gradient descent."""
        loss, gradient = jax.value_and_grad(lambda w: jnp.mean((w * batch["x"] - batch["y"]) ** 2))(state["w"])
        return {"w": state["w"] - 1e-3 * gradient}, {"loss": loss}


def strategies():
    """One."""
    return [Trainer()]
