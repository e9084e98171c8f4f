"""The CNN with ``nnx.BatchNorm`` behind each convolution, which has no bias then: the norm would take it out again.

Under ``jit`` the mean over a batch that is split over devices is that of all of them. Under ``pmap`` it is this
device's own, unless the norm is told the name of the axis to average it over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
from flax import nnx

from reference_impl import mapping
from reference_impl.mapping import Axes
from reference_impl.models import cnn, cnn_nnx
from reference_impl.truth import BatchNormCNNTruth, Optimizer
from reference_impl.truth.batch_norm_cnn import EPSILON, MOMENTUM


@dataclass(frozen=True)
class BatchNormCNN(cnn.CNN):
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
        """Raises ``NotImplementedError``: its running statistics are state of NNX's layers."""
        raise NotImplementedError(f"{self.name} in plain JAX: expected a form of NNX, whose layers keep statistics")


class CNN(cnn_nnx.CNN):
    """`BatchNormCNN` as a module. ``axis_name`` is that of ``pmap``."""

    def __init__(
        self,
        description: BatchNormCNN,
        storage: mapping.Mapping | None,
        *,
        axis_name: str | None = None,
        rngs: nnx.Rngs,
    ) -> None:
        super().__init__(description, storage, rngs=rngs)
        for name, (_, f) in description.convolutions.items():
            options = cnn_nnx.initializers(description.axes[norm_of(name)], storage)
            norm = nnx.BatchNorm(f, momentum=MOMENTUM, epsilon=EPSILON, axis_name=axis_name, rngs=rngs, **options)
            setattr(self, norm_of(name), norm)

    def convolved(self, name: str, x_BxHxWxC: jax.Array) -> jax.Array:
        """The convolution's output, normalised."""
        normalised = getattr(self, norm_of(name))(super().convolved(name, x_BxHxWxC))
        return normalised  # type: ignore[no-any-return]


def norm_of(convolution: str) -> str:
    """The name of the norm behind a convolution."""
    return convolution.replace("conv", "norm")
