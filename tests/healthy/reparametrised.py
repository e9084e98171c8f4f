"""Kernels that are made of other parameters: ``pytest suites/ --impl tests.healthy.reparametrised``."""

import jax
import jax.numpy as jnp
import numpy as np

from .recipes import DataParallel


class Normalised(DataParallel):
    """A kernel of unit columns, and a gain for each. XLA reduces their product's gradient, and makes both of it."""

    name, model = "weight_norm", "normalised_mlp"
    shapes = DataParallel.shapes | {"gain": (32,)}

    def mean_loss(self, w, batch):
        """The same network, of what the two make."""
        columns = w["hidden"] / jnp.linalg.norm(w["hidden"], axis=0)
        return super().mean_loss({"hidden": columns * w["gain"], "out": w["out"]}, batch)


class Perturbed(DataParallel):
    """A kernel around a mean, by a deviation of each element. XLA reduces its gradient, and makes both of it."""

    name, model = "perturbed", "perturbed_mlp"
    shapes = {"mean": (16, 32), "deviation": (16, 32), "out": (32, 8)}
    noise = np.random.default_rng(5).normal(size=(16, 32)).astype(np.float32)

    def mean_loss(self, w, batch):
        """The same network, of what the two make."""
        hidden = w["mean"] + jax.nn.softplus(w["deviation"]) * self.noise
        return super().mean_loss({"hidden": hidden, "out": w["out"]}, batch)


def strategies():
    """Both."""
    return [Normalised(), Perturbed()]
