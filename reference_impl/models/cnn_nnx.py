"""The CNN of the book in Flax NNX: ``nnx.Conv`` and ``nnx.Linear``, initializers annotated with their partitioning.

And with ``nnx.BatchNorm``. Under ``jit`` its mean over a batch that is split over devices is that of all of them; under
``pmap`` it is this device's own, unless the norm is told the name of the axis to average it over.
"""

from __future__ import annotations

from typing import Any

import jax
from flax import nnx

from reference_impl.mapping import Axes, Mapping
from reference_impl.models import cnn
from reference_impl.models.batch_norm_cnn import BatchNormCNN, norm_of
from reference_impl.models.layout import Layout
from reference_impl.truth.batch_norm_cnn import EPSILON, MOMENTUM

INITIALIZERS = {
    "kernel": nnx.initializers.lecun_uniform(),
    "bias": nnx.initializers.zeros_init(),
    "scale": nnx.initializers.ones_init(),
}


class CNN(nnx.Module):
    """``cnn.CNN`` as a module: the same layers by name, each parameter annotated by the mapping ``storage``, if any."""

    def __init__(
        self, description: cnn.CNN, storage: Mapping | None, *, axis_name: str | None = None, rngs: nnx.Rngs
    ) -> None:
        def annotated(initializer: Any, axes: Axes) -> Any:
            return initializer if storage is None else nnx.with_partitioning(initializer, tuple(storage.spec(axes)))

        def options(layer: str) -> dict[str, Any]:
            axes = description.axes[layer]
            return {f"{name}_init": annotated(INITIALIZERS[name], axes[name]) for name in axes} | {"rngs": rngs}

        self.description = description
        for name, (c, f) in description.convolutions.items():
            given = options(name) | {"use_bias": "bias" in description.axes[name]}
            setattr(self, name, nnx.Conv(c, f, kernel_size=(3, 3), padding="SAME", **given))
            if isinstance(description, BatchNormCNN):
                norm = norm_of(name)
                averaged = {"momentum": MOMENTUM, "epsilon": EPSILON, "axis_name": axis_name}
                setattr(self, norm, nnx.BatchNorm(f, **averaged, **options(norm)))
        self.dense = nnx.Linear(description.features, description.classes, **options("dense"))

    def __call__(self, x_BxHxWxC: jax.Array, layout: Layout) -> jax.Array:
        """Logits (B, classes)."""
        for name in self.description.convolutions:
            product = layout.leave(getattr(self, name)(x_BxHxWxC), "channels", cnn.MAP)
            if isinstance(self.description, BatchNormCNN):
                product = getattr(self, norm_of(name))(product)
            x_BxHxWxC = nnx.max_pool(nnx.relu(product), window_shape=(2, 2), strides=(2, 2))
        x_BxD = x_BxHxWxC.reshape(len(x_BxHxWxC), -1)
        return layout.leave(self.dense(x_BxD), "embed", ("classes",))
