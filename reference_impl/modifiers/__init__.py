"""Models that wrap a model and change one thing. They compose with every strategy for which that makes sense."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jax

from reference_impl.mapping import Axes
from reference_impl.models import Model, Region
from reference_impl.models.layout import Layout
from reference_impl.truth import ModelTruth, Optimizer


@dataclass(frozen=True)
class Modified(Model):
    """A model as it is. A modifier is a subclass that changes one of these members; modifiers nest.

    Raises ``ValueError`` for a model with dropout: no modifier passes on the number of the step, which it needs.
    """

    model: Model

    def __post_init__(self) -> None:
        if dropout := getattr(self.model, "dropout", 0):
            raise ValueError(
                f"dropout={dropout} under {type(self).__name__}: expected 0; modify a model without dropout"
            )

    @property
    def name(self) -> str:  # type: ignore[override]
        """The model's name: what modifies it stands in the case's variant."""
        return self.model.name

    @property
    def plain(self) -> Model:
        """The model's."""
        return self.model.plain

    @property
    def axes(self) -> dict[str, Any]:
        """The model's."""
        return self.model.axes

    @property
    def shapes(self) -> dict[str, Any]:
        """The model's."""
        return self.model.shapes

    @property
    def batch_axes(self) -> dict[str, Axes]:
        """The model's."""
        return self.model.batch_axes

    @property
    def promises(self) -> dict[str, Any]:
        """The model's."""
        return self.model.promises

    @property
    def group(self) -> int:  # type: ignore[override]
        """The model's."""
        return self.model.group

    @property
    def keys_and_values(self) -> int:
        """The model's."""
        return self.model.keys_and_values

    @property
    def statistics(self) -> int:
        """The model's."""
        return self.model.statistics

    @property
    def moved_dtype(self) -> str | None:
        """The model's."""
        return self.model.moved_dtype

    @property
    def segments(self) -> tuple[str, ...]:
        """The model's."""
        return self.model.segments

    @property
    def depth(self) -> int:
        """The model's."""
        return self.model.depth

    @property
    def added_last(self) -> str:
        """The model's."""
        return self.model.added_last

    @property
    def operands(self) -> dict[Axes, int]:
        """The model's."""
        return self.model.operands

    @property
    def products(self) -> int:
        """The model's: what is recomputed counts once."""
        return self.model.products

    def regions(self) -> Iterator[Region]:
        """The model's."""
        return self.model.regions()

    def truth(self, optimizer: Optimizer) -> ModelTruth:
        """The model's: the mathematics is the same."""
        return self.model.truth(optimizer)

    def init(self, key: jax.Array) -> dict[str, Any]:
        """The model's."""
        return self.model.init(key)

    def reshard(self, parameters: Mapping[str, Any], layout: Layout) -> Any:
        """The model's."""
        return self.model.reshard(parameters, layout)

    def apply(self, parameters: Mapping[str, Any], x: jax.Array, layout: Layout) -> jax.Array:
        """The model's."""
        return self.model.apply(parameters, x, layout)

    def applied(self, apply: Callable[[Any, jax.Array], jax.Array]) -> Callable[[Any, jax.Array], jax.Array]:
        """The model's."""
        return self.model.applied(apply)

    def mean_loss(self, outputs: jax.Array, labels: jax.Array) -> jax.Array:
        """The model's."""
        return self.model.mean_loss(outputs, labels)

    def loss_of(self, outputs: jax.Array, batch: Mapping[str, Any]) -> jax.Array:
        """The model's."""
        return self.model.loss_of(outputs, batch)

    def count(self, batch: Mapping[str, Any]) -> int | jax.Array:
        """The model's."""
        return self.model.count(batch)

    def value_and_grad(self, loss: Callable[..., jax.Array]) -> Callable[..., tuple[jax.Array, Any]]:
        """The model's."""
        return self.model.value_and_grad(loss)
