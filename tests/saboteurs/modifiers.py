"""Faults in what is added to a strategy: accumulation and masks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.lax import pmean

from reference_impl.models.layout import Whole
from reference_impl.models.mlp import MLP
from reference_impl.modifiers import Modified
from reference_impl.modifiers.accumulation import Accumulated
from reference_impl.modifiers.masking import Masked
from reference_impl.strategies import data_parallel_shard_map
from reference_impl.truth import MaskedTruth, Optimizer
from tests.saboteurs.planting import DATA, Unchecked, plant

Differentiate = Callable[..., Any]


class ForgetsLast(Accumulated):
    """A loop that ends too early."""

    def value_and_grad(self, loss: Differentiate) -> Differentiate:
        """All microbatches but the last."""
        fewer = Accumulated(self.model, self.microbatches - 1).value_and_grad(loss)
        seen = lambda field: field[np.arange(len(field)) % self.microbatches < self.microbatches - 1]  # noqa: E731
        return lambda parameters, batch, *rest: fewer(parameters, jax.tree.map(seen, batch), *rest)


class Sums(Accumulated):
    """A sum of the microbatches' means."""

    def value_and_grad(self, loss: Differentiate) -> Differentiate:
        """Too much by the number of microbatches."""
        mean = super().value_and_grad(loss)
        return lambda *arguments: jax.tree.map(lambda x: x * self.microbatches, mean(*arguments))


class ReducesEach(Modified):
    """Every microbatch's gradients are averaged over the devices before the next begins, and then again."""

    def value_and_grad(self, loss: Differentiate) -> Differentiate:
        """Inside the loop."""
        own = super().value_and_grad(loss)
        return lambda *arguments: pmean(own(*arguments), "data")


class Alike(Modified):
    """Means weighted alike, however few valid examples one is over."""

    def count(self, batch: Any) -> int:
        """As if none were padding."""
        return len(batch["mask"])


class PartsAlike(Accumulated):
    """A mean of the microbatches' means."""

    def value_and_grad(self, loss: Differentiate) -> Differentiate:
        """Only here: the devices are weighted as they should be."""
        return Accumulated(Alike(self.model), self.microbatches).value_and_grad(loss)


class IgnoresMask(Masked):
    """Padding is trained on."""

    def loss(self, parameters: Any, batch: Any, layout: Whole) -> Any:
        """The mean over all examples."""
        return self.model.loss(parameters, batch, layout)

    def count(self, batch: Any) -> Any:
        """All of them."""
        return self.model.count(batch)


class CountsPadding(Modified):
    """Padding has no loss, but is counted."""

    def loss(self, parameters: Any, batch: Any, layout: Whole) -> Any:
        """The sum over the valid examples, over all of them."""
        return self.model.loss(parameters, batch, layout) * self.model.count(batch) / len(batch["mask"])

    def count(self, batch: Any) -> int:
        """All of them."""
        return len(batch["mask"])


class EvenTruth(MaskedTruth):
    """Masks that hide such faults."""

    def batches(self, count: int, batch: int) -> Any:
        """As many valid examples on each of eight devices."""
        half = np.arange(batch) % (batch // 8) < batch // 16
        return tuple(one | {"mask": half} for one in self.model.batches(count, batch))


class Even(Masked):
    """A model whose batches have them."""

    def truth(self, optimizer: Optimizer) -> MaskedTruth:
        """That truth."""
        return EvenTruth(self.model.truth(optimizer))


for name, network, clauses in (
    ("healthy_accumulated", Accumulated(MLP()), ()),
    ("microbatch_forgotten", ForgetsLast(MLP()), ("ACC-1", "NUM-2")),
    ("microbatches_summed", Sums(MLP()), ("ACC-1", "NUM-2")),
    ("reduced_in_the_loop", Accumulated(ReducesEach(MLP())), ("COM-9", "COM-2", "COM-11")),
    ("healthy_masked", Masked(MLP()), ()),
    ("microbatches_averaged_alike", PartsAlike(Masked(MLP())), ("ACC-1", "MSK-1")),
    ("devices_averaged_alike", Alike(Masked(MLP())), ("MSK-1", "NUM-2", "NUM-4")),
    ("mask_ignored", IgnoresMask(MLP()), ("MSK-1", "NUM-2")),
    ("padding_counted", CountsPadding(Masked(MLP())), ("MSK-1", "NUM-2")),
    ("masks_even", Even(MLP()), ("MSK-1",)),
):
    plant(name, Unchecked, data_parallel_shard_map, DATA, *clauses, network=network)
