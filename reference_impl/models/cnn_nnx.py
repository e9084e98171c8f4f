"""The CNN of the book in Flax NNX: ``nnx.Conv`` and ``nnx.Linear``, initializers annotated with their partitioning."""

from __future__ import annotations

from typing import Any

import jax
from flax import nnx

from reference_impl.mapping import Axes, Mapping
from reference_impl.models import cnn
from reference_impl.models.layout import Layout

INITIALIZERS = {
    "kernel": nnx.initializers.lecun_uniform(),
    "bias": nnx.initializers.zeros_init(),
    "scale": nnx.initializers.ones_init(),
}
"""That of each kind of parameter."""


class CNN(nnx.Module):
    """``cnn.CNN`` as a module: the same layers by name, each parameter annotated by the mapping ``storage``, if any."""

    def __init__(self, description: cnn.CNN, storage: Mapping | None, *, rngs: nnx.Rngs) -> None:
        self.description = description
        for name, (c, f) in description.convolutions.items():
            axes = description.axes[name]
            options = initializers(axes, storage) | {"use_bias": "bias" in axes, "rngs": rngs}
            setattr(self, name, nnx.Conv(c, f, kernel_size=(3, 3), padding="SAME", **options))
        options = initializers(description.axes["dense"], storage)
        self.dense = nnx.Linear(description.features, description.classes, rngs=rngs, **options)

    def __call__(self, x_BxHxWxC: jax.Array, layout: Layout) -> jax.Array:
        """Logits (B, classes)."""
        for name in self.description.convolutions:
            product = layout.leave(self.convolved(name, x_BxHxWxC), "channels", cnn.MAP)
            x_BxHxWxC = nnx.max_pool(nnx.relu(product), window_shape=(2, 2), strides=(2, 2))
        x_BxD = x_BxHxWxC.reshape(len(x_BxHxWxC), -1)
        return layout.leave(self.dense(x_BxD), "embed", ("classes",))

    def convolved(self, name: str, x_BxHxWxC: jax.Array) -> jax.Array:
        """The output of one convolution."""
        return getattr(self, name)(x_BxHxWxC)  # type: ignore[no-any-return]


def initializers(axes: dict[str, Axes], storage: Mapping | None) -> dict[str, Any]:
    """Those of a layer's parameters as its constructor takes them, annotated by the mapping, if there is one."""

    def annotated(initializer: Any, axes: Axes) -> Any:
        return initializer if storage is None else nnx.with_partitioning(initializer, tuple(storage.spec(axes)))

    return {f"{name}_init": annotated(INITIALIZERS[name], of) for name, of in axes.items()}
