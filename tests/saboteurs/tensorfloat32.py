"""Faults of products that are to ask for TensorFloat-32."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from reference_impl.forms.annotated import JaxForm
from reference_impl.models.mlp import MLP
from reference_impl.modifiers.precision import MixedPrecision, TensorFloat32
from reference_impl.strategies import single_device
from tests.saboteurs.narrower import Halves, HalvesTooLong
from tests.saboteurs.planting import ONE, plant, plant_stranger


class SettingLost(TensorFloat32):
    """A setting that stands around the call of a function that was traced before."""

    def applied(self, apply: Any) -> Any:
        """As nobody asked."""
        return apply


class ForwardAlone(TensorFloat32):
    """A backward pass that is written by hand, and traced outside of the setting."""

    def applied(self, apply: Any) -> Any:
        """Its products are float32's."""
        forward = jax.custom_vjp(super().applied(apply))
        forward.defvjp(lambda *at: (forward(*at), at), lambda at, gradient: jax.vjp(apply, *at)[1](gradient))
        return forward


class LayersAlone(TensorFloat32):
    """Layers, alike and scanned, that were traced outside of the setting: what stands around them has it."""

    def applied(self, apply: Any) -> Any:
        """Twelve that are no parameters, before the network."""
        asking = super().applied(apply)

        def layered(parameters: Any, x: Any) -> Any:
            mixing = 1e-6 * jnp.ones((x.shape[-1],) * 2)
            return asking(parameters, jax.lax.scan(lambda h, _: (h + h @ mixing, None), x, None, length=12)[0])

        return layered


class InBfloat16(TensorFloat32):
    """Three bits less than declared."""

    applied = MixedPrecision.applied


class Coarse(Halves):
    """A stranger that is its own judge."""

    name, dtype = "healthy_coarse", "tensorfloat32"

    def mean_loss(self, w: Any, batch: Any) -> Any:
        """Products of float32 that ask for it."""
        with jax.default_matmul_precision("tensorfloat32"):
            return jnp.mean((jnp.tanh(batch["x"] @ w["hidden"]) @ w["out"] - batch["y"]) ** 2)


class CoarseTooLong(Coarse, HalvesTooLong):
    """And its gradients are too long on a mesh."""

    name = "coarse_too_long"


SMALL = MLP(widths=(784, 128, 10))
plant("healthy_tf32", JaxForm, single_device.PAGE, ONE, network=TensorFloat32(SMALL))
plant("tf32_is_not_asked_for", JaxForm, single_device.PAGE, ONE, "MIX-3", network=SettingLost(SMALL))
plant("tf32_forward_alone", JaxForm, single_device.PAGE, ONE, "MIX-3", network=ForwardAlone(SMALL))
plant("tf32_around_the_layers", JaxForm, single_device.PAGE, ONE, "MIX-3", network=LayersAlone(SMALL))
plant("bf16_for_tf32", JaxForm, single_device.PAGE, ONE, "MIX-1", "MIX-2", network=InBfloat16(SMALL))
plant_stranger(Coarse())
plant_stranger(CoarseTooLong(), "MIX-1")
