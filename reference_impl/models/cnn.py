"""The CNN of the book in plain JAX: 3×3 convolutions with ReLU and the maximum of 2×2 windows, then a dense layer.

Dims: B images, H, W rows and columns, C a layer's input channels, F its output channels. A kernel's output
channels have the logical axis ``embed``: FSDP splits that one, as a colour image has only three input channels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import optax

from meshproof.contract import leaves, nest
from reference_impl.mapping import Axes
from reference_impl.models import Model, Region
from reference_impl.models.layout import Layout
from reference_impl.truth import CNNTruth, Optimizer

MAP: Axes = ("height", "width", "embed")
"""The logical axes of an activation (B, H, W, F) but for the batch."""


@dataclass(frozen=True)
class CNN(Model):
    """Square images of ``size``, the channels from the image's on, and classes."""

    size: int = 8
    channels: tuple[int, ...] = (3, 8, 16)
    classes: int = 10
    name: ClassVar[str] = "cnn"

    @property
    def convolutions(self) -> dict[str, tuple[int, int]]:
        """Layer name to its input and output channels."""
        return {f"conv_{i}": pair for i, pair in enumerate(pairwise(self.channels))}

    @property
    def features(self) -> int:
        """How many numbers of an image reach the dense layer."""
        return (self.size // 2 ** len(self.convolutions)) ** 2 * self.channels[-1]

    @property
    def axes(self) -> dict[str, dict[str, Axes]]:
        """The canonical parameter tree, with logical axes at its leaves."""
        convolution: dict[str, Axes] = {"kernel": ("height", "width", "channels", "embed"), "bias": ("embed",)}
        dense: dict[str, Axes] = {"kernel": ("embed", "classes"), "bias": ("classes",)}
        return dict.fromkeys(self.convolutions, convolution) | {"dense": dense}

    @property
    def shapes(self) -> dict[str, dict[str, tuple[int, ...]]]:
        """The canonical parameter tree, with shapes at its leaves."""
        shapes: dict[str, dict[str, tuple[int, ...]]] = {
            name: {"kernel": (3, 3, c, f), "bias": (f,)} for name, (c, f) in self.convolutions.items()
        }
        return shapes | {"dense": {"kernel": (self.features, self.classes), "bias": (self.classes,)}}

    @property
    def batch_axes(self) -> dict[str, Axes]:
        """The fields of a batch: images x (B, H, W, C) and labels y (B,)."""
        return {"x": ("batch", "height", "width", "channels"), "y": ("batch",)}

    def regions(self) -> Iterator[Region]:
        """None: no page splits a convolution by columns and the next by rows."""
        return iter(())

    @property
    def products(self) -> int:
        """Nine taps at every pixel, of half the height and width behind each pool; and the dense layer's."""
        taps = sum((self.size >> i) ** 2 * 9 * c * f for i, (c, f) in enumerate(self.convolutions.values()))
        return taps + self.features * self.classes

    def truth(self, optimizer: Optimizer) -> CNNTruth:
        """The truth of this network."""
        return CNNTruth(self.size, self.channels, self.classes, optimizer)

    def init(self, key: jax.Array) -> dict[str, Any]:
        """Float32 parameters: LeCun-uniform kernels, zero biases."""
        kernel_init = jax.nn.initializers.lecun_uniform()
        shapes = dict(leaves(self.shapes))
        return nest(
            {
                path: kernel_init(key, shape) if path.endswith("kernel") else jnp.zeros(shape, jnp.float32)
                for key, (path, shape) in zip(jax.random.split(key, len(shapes)), shapes.items(), strict=True)
            }
        )

    def apply(self, parameters: Mapping[str, Any], x_BxHxWxC: jax.Array, layout: Layout) -> jax.Array:
        """Logits (B, classes)."""
        for name in self.convolutions:
            w_3x3xCxF, b_F = parameters[name]["kernel"], parameters[name]["bias"]
            product = jax.lax.conv_general_dilated(
                x_BxHxWxC, w_3x3xCxF, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
            x_BxHxWxC = pool(jax.nn.relu(layout.leave(product, "channels", MAP) + b_F))
        x_BxD = x_BxHxWxC.reshape(len(x_BxHxWxC), self.features)
        w_DxF, b_F = parameters["dense"]["kernel"], parameters["dense"]["bias"]
        return layout.product("bd,df->bf", x_BxD, w_DxF, "embed", ("classes",)) + b_F

    def mean_loss(self, y_BxF: jax.Array, labels_B: jax.Array) -> jax.Array:
        """The scalar mean over images of the cross-entropy."""
        return optax.softmax_cross_entropy_with_integer_labels(y_BxF, labels_B).mean()


def pool(x_BxHxWxC: jax.Array) -> jax.Array:
    """The maximum of each 2×2 window (B, H/2, W/2, C)."""
    window = (1, 2, 2, 1)
    return jax.lax.reduce_window(x_BxHxWxC, -jnp.inf, jax.lax.max, window, window, "VALID")
