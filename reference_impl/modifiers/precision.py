"""Fewer digits where they cost most: products in bfloat16, or in TensorFloat-32.

Mixed precision: products and activations in bfloat16, everything that is kept or added up over time in float32.

    parameters, gradients, optimizer state   float32, at rest and on the move
    parameters in use, inputs, activations   bfloat16
    outputs (logits) and loss                float32

An update is far smaller than the last bit of a bfloat16 parameter: a master copy in bfloat16 would not learn. The cast
stands inside what is differentiated, so its transpose casts each gradient back to float32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from reference_impl.models.layout import Layout
from reference_impl.modifiers import Modified
from reference_impl.truth import ModelTruth, Optimizer


@dataclass(frozen=True)
class MixedPrecision(Modified):
    """A model that computes in bfloat16."""

    @property
    def promises(self) -> dict[str, Any]:
        """The model's, and the dtype of activations."""
        return self.model.promises | {"compute_dtype": "bfloat16"}

    def truth(self, optimizer: Optimizer) -> ModelTruth:
        """The truth of the same mathematics; its bound allows for bfloat16's rounding."""
        return self.model.truth(optimizer).in_bfloat16()

    def apply(self, parameters: Mapping[str, Any], x: jax.Array, layout: Layout) -> jax.Array:
        """The outputs, in float32."""
        return self.applied(lambda parameters, x: self.model.apply(parameters, x, layout))(parameters, x)

    def applied(self, apply: Callable[[Any, jax.Array], jax.Array]) -> Callable[[Any, jax.Array], jax.Array]:
        """Of narrow parameters and inputs; the outputs in float32."""
        return lambda parameters, x: apply(jax.tree.map(narrow, parameters), narrow(x)).astype(jnp.float32)


@dataclass(frozen=True)
class TensorFloat32(Modified):
    """A model of float32 whose products may take TensorFloat-32: GPUs drop 13 bits of what they multiply, CPUs none.

    The precision is set where the model is traced, so that its products have it wherever it runs, those of the backward
    pass too; a setting of the process (``jax_default_matmul_precision``) holds for whatever else it runs.
    """

    @property
    def promises(self) -> dict[str, Any]:
        """The model's, and the precision of products."""
        return self.model.promises | {"compute_dtype": "tensorfloat32"}

    def truth(self, optimizer: Optimizer) -> ModelTruth:
        """The truth of the same mathematics; its bound allows for operands without their last 13 bits."""
        return self.model.truth(optimizer).in_tensorfloat32()

    def apply(self, parameters: Mapping[str, Any], x: jax.Array, layout: Layout) -> jax.Array:
        """The outputs."""
        return self.applied(lambda parameters, x: self.model.apply(parameters, x, layout))(parameters, x)

    def applied(self, apply: Callable[[Any, jax.Array], jax.Array]) -> Callable[[Any, jax.Array], jax.Array]:
        """Of the same arrays."""
        return jax.default_matmul_precision("tensorfloat32")(apply)


@dataclass(frozen=True)
class NarrowOnTheMove(MixedPrecision):
    """Mixed precision that also moves in bfloat16: parameters are cast where they rest, gradients once they are there.

    What is cast is held at rest before it is gathered, otherwise a compiler may gather float32 and cast then. The
    gradient's cast then follows its reduction: where it stands between an all-reduce and the slice, XLA:GPU makes no
    reduce-scatter of the two.
    """

    @property
    def moved_dtype(self) -> str:
        """Half of float32's bytes."""
        return "bfloat16"

    def reshard(self, parameters: Mapping[str, Any], layout: Layout) -> Any:
        """The model's, of narrow parameters."""
        return self.model.reshard(layout.hold(jax.tree.map(narrow, dict(parameters)), self.axes), layout)


def narrow(value: jax.Array) -> jax.Array:
    """In bfloat16; what is no float, such as a token, as it is."""
    return value.astype(jnp.bfloat16) if jnp.issubdtype(value.dtype, jnp.floating) else value
