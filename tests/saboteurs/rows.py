"""Faults that wait for an odd batch: an example that is not finite, a mask that is not alike on all devices."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

from meshproof.contract import Contract
from tests.saboteurs.planting import plant_stranger
from tests.saboteurs.strangers import WHOLE, Sick


class MaskByTheDevice(Sick):
    """Each device takes the mean over its own rows, which is right while masks are alike."""

    name = "mask_by_the_device"

    @property
    def contract(self) -> Contract:
        """With a mask, and a budget left open."""
        return Contract(WHOLE, WHOLE, WHOLE, {"*": P("data")}, mask="mask")

    def batch(self, draws: Any) -> Any:
        """Every fourth row is padding, on each device alike."""
        return super().batch(draws) | {"mask": (np.arange(64) % 4 > 0).astype(np.float32)}

    def mean_loss(self, w: Any, batch: Any) -> Any:
        """Of the rows that count, device by device."""
        rows = jnp.mean((jnp.tanh(batch["x"] @ w["hidden"]) @ w["out"] - batch["y"]) ** 2, axis=-1)
        by_device = self.mesh_axes["data"], -1
        sums, counts = (jnp.sum(each.reshape(by_device), 1) for each in (rows * batch["mask"], batch["mask"]))
        return jnp.mean(sums / jnp.maximum(counts, 1))

    def harmed(self, gradients: Any, state: Any, batch: Any) -> Any:
        """They are wrong already."""
        return gradients


class EmptyDeviceCountsOne(MaskByTheDevice):
    """The global mean, but for a device without a row, which counts one."""

    name = "empty_device_counts_one"

    def mean_loss(self, w: Any, batch: Any) -> Any:
        """Its sums are over all devices."""
        rows = jnp.mean((jnp.tanh(batch["x"] @ w["hidden"]) @ w["out"] - batch["y"]) ** 2, axis=-1)
        counts = jnp.sum(batch["mask"].reshape(self.mesh_axes["data"], -1), axis=1)
        return jnp.sum(rows * batch["mask"]) / jnp.sum(jnp.maximum(counts, 1))


class NotFiniteOnTheFirstDevice(Sick):
    """What the first device has that is not finite is taken for 0; what another has is not."""

    name = "not_finite_on_the_first_device"

    @property
    def contract(self) -> Contract:
        """A budget left open."""
        return Contract(WHOLE, WHOLE, WHOLE, {"*": P("data")})

    def harmed(self, gradients: Any, state: Any, batch: Any) -> Any:
        """By its first row."""
        bad = ~jnp.isfinite(batch["x"][0]).all()
        return jax.tree.map(lambda g: jnp.where(bad & ~jnp.isfinite(g), 0, g), gradients)


class OverflowForgotten(Sick):
    """Where a gradient is not finite it is taken for 0 on a mesh: one device notices."""

    name = "overflow_forgotten"

    def harmed(self, gradients: Any, state: Any, batch: Any) -> Any:
        """As nan_to_num."""
        return jax.tree.map(lambda g: jnp.where(jnp.isfinite(g), g, 0), gradients)


for kind in (OverflowForgotten, MaskByTheDevice, EmptyDeviceCountsOne, NotFiniteOnTheFirstDevice):
    plant_stranger(kind(), "NUM-13")
