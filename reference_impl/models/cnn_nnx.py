"""The CNN of the book in Flax NNX: ``nnx.Conv`` and ``nnx.Linear``, annotated with their partitioning at birth."""

from __future__ import annotations

from typing import Any

import jax
from flax import nnx

from reference_impl.mapping import Axes, Mapping
from reference_impl.models import cnn
from reference_impl.models.layout import Whole


class CNN(nnx.Module):
    """``cnn.CNN`` as a module: the same layers by name, each parameter annotated by the mapping ``storage``."""

    def __init__(self, description: cnn.CNN, storage: Mapping, *, rngs: nnx.Rngs) -> None:
        def annotated(layer: str) -> dict[str, Any]:
            axes: dict[str, Axes] = description.axes[layer]
            kernel, bias = (tuple(storage.spec(axes[name])) for name in ("kernel", "bias"))
            return {
                "kernel_init": nnx.with_partitioning(nnx.initializers.lecun_normal(), kernel),
                "bias_init": nnx.with_partitioning(nnx.initializers.zeros_init(), bias),
                "rngs": rngs,
            }

        self.description = description
        for name, (c, f) in description.convolutions.items():
            setattr(self, name, nnx.Conv(c, f, kernel_size=(3, 3), padding="SAME", **annotated(name)))
        self.dense = nnx.Linear(description.features, description.classes, **annotated("dense"))

    def __call__(self, x_BxHxWxC: jax.Array, layout: Whole) -> jax.Array:
        """Logits (B, classes)."""
        for name in self.description.convolutions:
            product = layout.leave(getattr(self, name)(x_BxHxWxC), "channels", cnn.MAP)
            x_BxHxWxC = nnx.max_pool(nnx.relu(product), window_shape=(2, 2), strides=(2, 2))
        x_BxD = x_BxHxWxC.reshape(len(x_BxHxWxC), -1)
        return layout.leave(self.dense(x_BxD), "embed", ("classes",))
