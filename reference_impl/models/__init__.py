"""What a strategy needs to know about a model: its arrays by logical axis, its loss, its truth, and its traffic."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, NamedTuple

import jax

from reference_impl.mapping import Axes
from reference_impl.models.layout import Layout
from reference_impl.truth import ModelTruth, Optimizer


class Region(NamedTuple):
    """Products between two changes of layout: kernels split along ``axis`` by columns, then by rows, or stacked on it.

    ``entered`` and ``left`` count the elements, per example, of the activation at the column-parallel entry (0 where it
    needs no gradient) and at the row-parallel exit; of stacked kernels (``experts``), what is sent to them and back.
    ``inner`` says that its block continues after it, ``known`` that every device has the whole gradient of what
    entered, so that backward nothing is reduced.
    """

    axis: str
    entered: int
    left: int
    inner: bool = False
    known: bool = False


class Model(ABC):
    """A model is a frozen dataclass; its trees are nested dicts, the canonical parameter tree.

    ``axes`` and ``shapes`` have the logical axes and the global shape of each parameter, ``batch_axes`` the logical
    axes of each field of a batch: inputs ``x`` and labels ``y``.
    """

    name: ClassVar[str]
    group: int = 1
    """How many consecutive examples one device must hold together."""

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
    def moved_dtype(self) -> str | None:
        """What parameters, gradients and activations move in; ``None`` leaves it open."""
        return None

    @property
    def segments(self) -> tuple[str, ...]:
        """The names of the parts that `apply` runs as blocks, in order; empty where the model has no blocks."""
        return ()

    @property
    def depth(self) -> int:
        """How many blocks `apply` runs."""
        return len(self.segments)

    @property
    def added_last(self) -> str:
        """The path in a block of the parameter that is only added to its output: no gradient depends on its value."""
        raise NotImplementedError(f"{self.name} has no blocks")

    @property
    def operands(self) -> dict[Axes, int]:
        """The activations, by their logical axes, that the gradients of a block's products depend on.

        In elements per example. Not the input of the first product: it can be recomputed from the block's input.
        """
        raise NotImplementedError(f"{self.name} has no blocks")

    @abstractmethod
    def regions(self) -> Iterator[Region]:
        """What tensor or expert parallelism would have to move, in the order of the forward pass."""

    @property
    def keys_and_values(self) -> int:
        """The elements of all keys and values of an example; 0 without attention."""
        return 0

    @property
    def statistics(self) -> int:
        """The elements of the statistics of a batch that a forward pass takes; 0 where no layer normalises a batch."""
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

    def reshard(self, parameters: Mapping[str, Any], layout: Layout) -> Any:
        """The parameters as `apply` takes them: all in the layout that they are computed with."""
        return layout.reshard(parameters, self.axes)

    @abstractmethod
    def apply(self, parameters: Mapping[str, Any], x: jax.Array, layout: Layout) -> jax.Array:
        """The outputs of a batch of inputs."""

    @abstractmethod
    def mean_loss(self, outputs: jax.Array, labels: jax.Array) -> jax.Array:
        """The scalar mean loss of outputs."""

    @property
    def plain(self) -> Model:
        """The model without what modifies it."""
        return self

    def applied(self, apply: Callable[[Any, jax.Array], jax.Array]) -> Callable[[Any, jax.Array], jax.Array]:
        """``(parameters, x) → outputs`` of a framework's module, as this model computes it."""
        return apply

    def loss(self, parameters: Mapping[str, Any], batch: Mapping[str, Any], layout: Layout) -> jax.Array:
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
