"""The MLP of the book in Flax NNX: ``nnx.Linear`` layers, annotated with their partitioning at birth."""

from __future__ import annotations

from itertools import pairwise

import jax
from flax import nnx

from reference_impl.mapping import Mapping
from reference_impl.models import mlp
from reference_impl.models.layout import Whole


class MLP(nnx.Module):
    """``mlp.MLP`` as a module: the same layers by name, each parameter annotated by the mapping ``storage``."""

    def __init__(self, description: mlp.MLP, storage: Mapping, *, rngs: nnx.Rngs) -> None:
        self.description = description
        for (name, axes), (d, f) in zip(description.layers.items(), pairwise(description.widths), strict=True):
            kernel_init = nnx.with_partitioning(nnx.initializers.lecun_normal(), tuple(storage.spec(axes)))
            bias_init = nnx.with_partitioning(nnx.initializers.zeros_init(), tuple(storage.spec(axes[1:])))
            setattr(self, name, nnx.Linear(d, f, kernel_init=kernel_init, bias_init=bias_init, rngs=rngs))

    def __call__(self, x_BxD: jax.Array, layout: Whole) -> jax.Array:
        """Logits (B, C)."""
        for i, (name, (over, into)) in enumerate(self.description.layers.items()):
            if i > 0:
                x_BxD = jax.nn.relu(x_BxD)
            x_BxD = layout.leave(getattr(self, name)(layout.enter(x_BxD, into)), over, (into,))
        return x_BxD
