"""The CNN with a batch normalisation behind each convolution, which has no bias then: the norm would take it out again.

Dims as in ``cnn``. In plain JAX it is what a train step computes of a batch. The running statistics, which only
evaluation needs, are state of the layers, as their NNX module has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from reference_impl.mapping import Axes
from reference_impl.models.cnn import CNN
from reference_impl.truth import BatchNormCNNTruth, Optimizer
from reference_impl.truth.batch_norm_cnn import EPSILON


@dataclass(frozen=True)
class BatchNormCNN(CNN):
    """Sizes as of a CNN."""

    name: ClassVar[str] = "batch_norm_cnn"  # type: ignore[misc]

    @property
    def axes(self) -> dict[str, dict[str, Axes]]:
        """The canonical parameter tree, with logical axes at its leaves."""
        return self.with_norms(super().axes)

    @property
    def shapes(self) -> dict[str, dict[str, tuple[int, ...]]]:
        """The canonical parameter tree, with shapes at its leaves."""
        return self.with_norms(super().shapes)

    @property
    def statistics(self) -> int:
        """A mean and a variance of each channel."""
        return 2 * sum(self.channels[1:])

    def with_norms(self, tree: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
        """A CNN's tree with ``norm_i`` behind each ``conv_i``: its scale and its bias are as that one's bias was."""
        normed: dict[str, dict[str, Any]] = {}
        for name in self.convolutions:
            bias = tree[name]["bias"]
            normed |= {name: {"kernel": tree[name]["kernel"]}, norm_of(name): {"scale": bias, "bias": bias}}
        return normed | {"dense": dict(tree["dense"])}

    def truth(self, optimizer: Optimizer) -> BatchNormCNNTruth:
        """The truth of this network."""
        return BatchNormCNNTruth(self.size, self.channels, self.classes, optimizer)

    def init(self, key: jax.Array) -> dict[str, Any]:
        """As of a CNN, and scales of one."""
        parameters = super().init(key)
        for name in self.convolutions:
            parameters[norm_of(name)]["scale"] += 1
        return parameters

    def shifted(self, parameters: Mapping[str, Any], name: str, product_BxHxWxF: jax.Array) -> jax.Array:
        """The product, normalised over the pixels of all images, with the norm's scale and bias."""
        pixels, norm = (0, 1, 2), parameters[norm_of(name)]
        mean_F, variance_F = product_BxHxWxF.mean(pixels), jnp.var(product_BxHxWxF, pixels)
        return (product_BxHxWxF - mean_F) * jax.lax.rsqrt(variance_F + EPSILON) * norm["scale"] + norm["bias"]  # type: ignore[no-any-return]


def norm_of(convolution: str) -> str:
    """The name of the norm behind a convolution."""
    return convolution.replace("conv", "norm")
