"""What a strategy needs to know of a model: its arrays by logical axis, its loss, its truth, and what it would move."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, NamedTuple

import jax

from reference_impl.mapping import Axes
from reference_impl.models.layout import Whole
from reference_impl.truth import ModelTruth, Optimizer


class Region(NamedTuple):
    """Products between two changes of layout: kernels split along ``axis`` by columns, then by rows, or stacked on it.

    ``entered`` and ``left`` count the elements, per example, of the activation at the column-parallel entry (0 where it
    needs no gradient) and at the row-parallel exit; of stacked kernels (``experts``), what is sent to them and back.
    ``inner`` says that its block goes on behind it.
    """

    axis: str
    entered: int
    left: int
    inner: bool = False


class Model(ABC):
    """A model is a frozen dataclass; its trees are nested dicts, the canonical parameter tree.

    ``axes`` and ``shapes`` have the logical axes and the global shape of each parameter, ``batch_axes`` the logical
    axes of each field of a batch: inputs ``x`` and labels ``y``.
    """

    name: ClassVar[str]
    group: int = 1
    """How many examples, one after another, one device must hold together."""

    @property
    @abstractmethod
    def axes(self) -> dict[str, Any]:
        """The canonical parameter tree, with logical axes at its leaves."""

    @property
    @abstractmethod
    def shapes(self) -> dict[str, Any]:
        """The canonical parameter tree, with shapes at its leaves."""

    @property
    @abstractmethod
    def batch_axes(self) -> dict[str, Axes]:
        """The fields of a batch, with their logical axes."""

    @property
    def promises(self) -> dict[str, Any]:
        """The fields of a `Contract` that are the model's to fill: what a modifier does to it."""
        return {}

    @property
    def segments(self) -> tuple[str, ...]:
        """The names of the parts that `apply` runs as blocks, one after another; none where it has no blocks."""
        return ()

    @property
    def added_last(self) -> str:
        """The path, in a block, of the parameter that is merely added to what leaves it: no gradient depends on it."""
        raise NotImplementedError(f"{self.name} has no blocks")

    @property
    def operands(self) -> dict[Axes, int]:
        """The activations, by their logical axes, that the gradients of a block's products depend on.

        In elements per example; without what enters the first product: it may be made again of what entered the block.
        """
        raise NotImplementedError(f"{self.name} has no blocks")

    @abstractmethod
    def regions(self) -> Iterator[Region]:
        """What tensor or expert parallelism would have to move, in the order of the forward pass."""

    @property
    def keys_and_values(self) -> int:
        """The elements of all keys and values of an example: none without attention."""
        return 0

    @property
    @abstractmethod
    def products(self) -> int:
        """The multiply-adds of an example's matrix products and convolutions, forward."""

    @abstractmethod
    def truth(self, optimizer: Optimizer) -> ModelTruth:
        """The float64 judge of this model with an optimizer; it also draws the batches."""

    @abstractmethod
    def init(self, key: jax.Array) -> dict[str, Any]:
        """Float32 parameters; kernels are drawn uniformly: XLA compiles that in four fifths of a normal's time."""

    def bring(self, parameters: Mapping[str, Any], layout: Whole) -> Any:
        """The parameters as `apply` takes them: all where they are computed with."""
        return layout.bring(parameters, self.axes)

    @abstractmethod
    def apply(self, parameters: Mapping[str, Any], x: jax.Array, layout: Whole) -> jax.Array:
        """The outputs of a batch of inputs."""

    @abstractmethod
    def mean_loss(self, outputs: jax.Array, labels: jax.Array) -> jax.Array:
        """The scalar mean loss of outputs."""

    def loss(self, parameters: Mapping[str, Any], batch: Mapping[str, Any], layout: Whole) -> jax.Array:
        """The scalar mean loss of the batch that this program sees."""
        return self.loss_of(self.apply(parameters, batch["x"], layout), batch)

    def loss_of(self, outputs: jax.Array, batch: Mapping[str, Any]) -> jax.Array:
        """The scalar mean loss of the outputs of a batch."""
        return self.mean_loss(outputs, batch["y"])

    def count(self, batch: Mapping[str, Any]) -> int | jax.Array:
        """How many examples that mean is over."""
        return len(batch["y"])

    def value_and_grad(self, loss: Callable[..., jax.Array]) -> Callable[..., tuple[jax.Array, Any]]:
        """``jax.value_and_grad`` of a mean loss of ``(parameters, batch, *rest)``."""
        return jax.value_and_grad(loss)
