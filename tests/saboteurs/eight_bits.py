"""Faults of products, and of moments, that are rounded to 8 bits."""

from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax.sharding import PartitionSpec as P

from tests.healthy.eight_bits import Momentum, Scaled
from tests.saboteurs.planting import plant_stranger

NARROW = jnp.float8_e4m3fn


class Undeclared(Scaled):
    """The contract says bfloat16, and no more."""

    name = "eight_bits_undeclared"
    promises = {key: value for key, value in Scaled.promises.items() if key != "quantised"}  # noqa: RUF012


class ForwardAlone(nn.Module):
    """A product whose operands are rounded, and whose gradient passes as if they were not."""

    @nn.compact
    def __call__(self, *operands: Any, **given: Any) -> Any:
        """No scales are kept."""
        self.variable("_overwrite_with_gradient", "scale", jnp.ones, 1)
        x, w = (jnp.asarray(each, jnp.bfloat16) for each in operands[:2])
        x, w = (each + jax.lax.stop_gradient(each.astype(NARROW).astype(each.dtype) - each) for each in (x, w))
        return jax.lax.dot_general(x, w, *operands[2:3])


class NotBackward(Scaled):
    """Says that gradients are rounded, too."""

    name = "gradients_not_in_eight_bits"
    product = ForwardAlone


class SumsInEight(Scaled):
    """Adds its loss up in what it multiplies."""

    name = "loss_summed_in_eight_bits"

    def mean_loss(self, w: Any, batch: Any, scales: Any) -> Any:
        """A little of it."""
        total = jax.lax.reduce(batch["x"].astype(NARROW), NARROW(0), jax.lax.add, (0, 1))
        return super().mean_loss(w, batch, scales) + 1e-6 * total.astype(jnp.float32)


class KeepsItsScales(Scaled):
    """Scales that are never handed on, on the mesh."""

    name = "scales_never_handed_on"

    def update(self, state: Any, batch: Any) -> Any:
        """Those of the start."""
        new, metrics = super().update(state, batch)
        return (new | {"auxiliary": state["auxiliary"]} if self.mesh.size > 1 else new), metrics


class OwnScales(Scaled):
    """Each device scales by the largest of its own values, and calls that one state."""

    name = "scales_of_each_device"
    step_moves = Scaled.step_moves[:2]

    @cached_property
    def train_step(self) -> Any:
        """By hand."""
        parts = {"mesh": self.mesh, "in_specs": (P(), self.rows), "out_specs": P()}
        return jax.jit(jax.shard_map(self.update, **parts, check_vma=False), donate_argnums=0)

    def value_and_gradients(self, w: Any, batch: Any, scales: Any) -> Any:
        """The mean of loss and gradients, and no scale of others."""
        value, (gradients, scales) = super().value_and_gradients(w, batch, scales)
        value, gradients = jax.lax.pmean((value, gradients), "data")
        return value, (gradients, scales)


class SumsMomentum(Momentum):
    """The sum of the devices' gradients, where their mean belongs."""

    name = "eight_bit_momentum_of_the_sum"

    def value_and_gradients(self, w: Any, batch: Any) -> Any:
        """So many times as long."""
        value, gradients = super().value_and_gradients(w, batch)
        return value, jax.tree.map(lambda g: g * self.mesh.size, gradients)


plant_stranger(Undeclared(), "MIX-2")
plant_stranger(NotBackward(), "MIX-2")
plant_stranger(SumsInEight(), "MIX-2")
plant_stranger(KeepsItsScales(), "AUX-1", "NUM-13")
plant_stranger(OwnScales(), "NUM-6")
plant_stranger(SumsMomentum(), "NUM-2")
