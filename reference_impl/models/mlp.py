"""The MLP of the book in plain JAX: dense layers with ReLU between them.

Dims: B batch, D a layer's input width, F its output width, C classes. Widths alternate between the logical axes
``embed`` and ``mlp``, so that every pair (embed, mlp), (mlp, embed) is a transformer's MLP block. A single hidden layer
is ``mlp``: input and classes are what its block embeds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import optax

from reference_impl.mapping import Axes
from reference_impl.models import Model, Region
from reference_impl.models.layout import Layout
from reference_impl.truth import Loss, MLPTruth, Optimizer


@dataclass(frozen=True)
class MLP(Model):
    """Layer widths, input first, and the loss: ``softmax_cross_entropy`` or ``mean_squared_error``."""

    widths: tuple[int, ...] = (784, 128, 512, 128, 10)
    criterion: Loss = "softmax_cross_entropy"
    name: ClassVar[str] = "mlp"

    @property
    def layers(self) -> dict[str, Axes]:
        """Layer name to the logical axes of its kernel (D, F)."""
        count = len(self.widths) - 2
        hidden = [("embed", "mlp")[i % 2] for i in range(count)] if count > 1 else ["mlp"] * count
        axes = ["input", *hidden, "classes"]
        return {f"dense_{i}": pair for i, pair in enumerate(pairwise(axes))}

    @property
    def axes(self) -> dict[str, dict[str, Axes]]:
        """The canonical parameter tree, with logical axes at its leaves."""
        return {name: {"kernel": axes, "bias": axes[1:]} for name, axes in self.layers.items()}

    @property
    def shapes(self) -> dict[str, dict[str, tuple[int, ...]]]:
        """The canonical parameter tree, with shapes at its leaves."""
        pairs = zip(self.layers, pairwise(self.widths), strict=True)
        return {name: {"kernel": (d, f), "bias": (f,)} for name, (d, f) in pairs}

    @property
    def batch_axes(self) -> dict[str, Axes]:
        """The fields of a batch: inputs x (B, D) and labels y (B,) or targets y (B, C)."""
        labels = ("batch",) if self.criterion == "softmax_cross_entropy" else ("batch", "classes")
        return {"x": ("batch", "input"), "y": labels}

    def regions(self) -> Iterator[Region]:
        """Every pair (embed, mlp), (mlp, embed) of layers; the first layer's input needs no gradient."""
        for i, ((_, axis), (d, _)) in enumerate(zip(self.layers.values(), pairwise(self.widths), strict=True)):
            if axis == "mlp":
                yield Region(axis, entered=d if i else 0, left=self.widths[i + 2])

    @property
    def products(self) -> int:
        """Those of all kernels."""
        return sum(d * f for d, f in pairwise(self.widths))

    def truth(self, optimizer: Optimizer) -> MLPTruth:
        """The truth of this network."""
        return MLPTruth(self.widths, self.criterion, optimizer)

    def init(self, key: jax.Array) -> dict[str, Any]:
        """Float32 parameters: LeCun-uniform kernels, zero biases."""
        kernel_init = jax.nn.initializers.lecun_uniform()
        return {
            name: {"kernel": kernel_init(key, layer["kernel"]), "bias": jnp.zeros(layer["bias"], jnp.float32)}
            for key, (name, layer) in zip(jax.random.split(key, len(self.shapes)), self.shapes.items(), strict=True)
        }

    def apply(self, parameters: Mapping[str, Any], x_BxD: jax.Array, layout: Layout) -> jax.Array:
        """Logits (B, C)."""
        for i, (name, (over, into)) in enumerate(self.layers.items()):
            if i > 0:
                x_BxD = jax.nn.relu(x_BxD)
            kernel_DxF, bias_F = parameters[name]["kernel"], parameters[name]["bias"]
            x_BxD = layout.product("bd,df->bf", layout.enter(x_BxD, into), kernel_DxF, over, (into,)) + bias_F
        return x_BxD

    def mean_loss(self, y_BxC: jax.Array, labels: jax.Array) -> jax.Array:
        """The scalar mean over examples of the cross-entropy, or over elements of the squared error."""
        if self.criterion == "softmax_cross_entropy":
            return optax.softmax_cross_entropy_with_integer_labels(y_BxC, labels).mean()
        return jnp.mean((y_BxC - labels) ** 2)
