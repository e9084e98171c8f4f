"""The CNN of the book in Flax NNX: ``nnx.Conv`` and ``nnx.Linear``, initializers annotated with their partitioning."""

from __future__ import annotations

from typing import Any

import jax
from flax import nnx

from reference_impl.mapping import Axes, Mapping
from reference_impl.models import cnn
from reference_impl.models.layout import Layout


class CNN(nnx.Module):
    """``cnn.CNN`` as a module: the same layers by name, each parameter annotated by the mapping ``storage``, if any."""

    def __init__(self, description: cnn.CNN, storage: Mapping | None, *, rngs: nnx.Rngs) -> None:
        def annotated(initializer: Any, axes: Axes) -> Any:
            return initializer if storage is None else nnx.with_partitioning(initializer, tuple(storage.spec(axes)))

        def options(layer: str) -> dict[str, Any]:
            axes = description.axes[layer]
            return {
                "kernel_init": annotated(nnx.initializers.lecun_uniform(), axes["kernel"]),
                "bias_init": annotated(nnx.initializers.zeros_init(), axes["bias"]),
                "rngs": rngs,
            }

        self.description = description
        for name, (c, f) in description.convolutions.items():
            setattr(self, name, nnx.Conv(c, f, kernel_size=(3, 3), padding="SAME", **options(name)))
        self.dense = nnx.Linear(description.features, description.classes, **options("dense"))

    def __call__(self, x_BxHxWxC: jax.Array, layout: Layout) -> jax.Array:
        """Logits (B, classes)."""
        for name in self.description.convolutions:
            product = layout.leave(getattr(self, name)(x_BxHxWxC), "channels", cnn.MAP)
            x_BxHxWxC = nnx.max_pool(nnx.relu(product), window_shape=(2, 2), strides=(2, 2))
        x_BxD = x_BxHxWxC.reshape(len(x_BxHxWxC), -1)
        return layout.leave(self.dense(x_BxD), "embed", ("classes",))
