"""Faults in what is added to a strategy: accumulation, masks, mixed precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import pmean

from reference_impl.forms.annotated import JaxForm
from reference_impl.forms.base import TrainState
from reference_impl.models.layout import Layout
from reference_impl.models.mlp import MLP
from reference_impl.modifiers import Modified
from reference_impl.modifiers.accumulation import Accumulated
from reference_impl.modifiers.masking import Masked
from reference_impl.modifiers.precision import MixedPrecision
from reference_impl.strategies import data_parallel_shard_map, single_device
from reference_impl.truth import MaskedTruth, Optimizer
from tests.saboteurs.collectives import each, in_bf16, synchronize_by
from tests.saboteurs.planting import DATA, ONE, Unchecked, plant

Differentiate = Callable[..., Any]


class ForgetsLast(Accumulated):
    """A loop that ends too early."""

    def value_and_grad(self, loss: Differentiate) -> Differentiate:
        """All microbatches but the last."""
        fewer = Accumulated(self.model, self.microbatches - 1).value_and_grad(loss)
        seen = lambda field: field[np.arange(len(field)) % self.microbatches < self.microbatches - 1]  # noqa: E731
        return lambda parameters, batch, *rest: fewer(parameters, jax.tree.map(seen, batch), *rest)


class CountsTwice(Accumulated):
    """A loop that begins one too late."""

    def value_and_grad(self, loss: Differentiate) -> Differentiate:
        """The second microbatch stands in the first one's place, too."""
        healthy, k = super().value_and_grad(loss), self.microbatches
        again = lambda field: field[np.arange(len(field)) + (np.arange(len(field)) % k == 0)]  # noqa: E731
        return lambda parameters, batch, *rest: healthy(parameters, jax.tree.map(again, batch), *rest)


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


class TakesWhole(Accumulated):
    """A loop that somebody forgot: the same numbers and the same bytes, and the activations of the whole batch."""

    def value_and_grad(self, loss: Differentiate) -> Differentiate:
        """The model's."""
        return self.model.value_and_grad(loss)


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

    def loss_of(self, outputs: Any, batch: Any) -> Any:
        """The mean over all examples."""
        return self.model.loss_of(outputs, batch)

    def count(self, batch: Any) -> Any:
        """All of them."""
        return self.model.count(batch)


class CountsPadding(Modified):
    """Padding has no loss, but is counted."""

    def loss_of(self, outputs: Any, batch: Any) -> Any:
        """The sum over the valid examples, over all of them."""
        return self.model.loss_of(outputs, batch) * self.model.count(batch) / len(batch["mask"])

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


class ClaimsToBeMixed(MixedPrecision):
    """Float32 that says it is bfloat16: a cast that somebody left out."""

    def apply(self, parameters: Any, x: Any, layout: Layout) -> Any:
        """No cast."""
        return self.model.apply(parameters, x, layout)


class Float8(MixedPrecision):
    """An eighth of the digits that were promised."""

    def apply(self, parameters: Any, x: Any, layout: Layout) -> Any:
        """Through float8 to bfloat16."""
        coarse = lambda value: value.astype(jnp.float8_e4m3fn).astype(jnp.float32)  # noqa: E731
        return super().apply(jax.tree.map(coarse, parameters), coarse(x), layout)


class LossInBfloat16(MixedPrecision):
    """Outputs that are never widened."""

    def apply(self, parameters: Any, x: Any, layout: Layout) -> Any:
        """The loss is computed of bfloat16, in bfloat16."""
        return super().apply(parameters, x, layout).astype(jnp.bfloat16)


def rounded(tree: Any) -> Any:
    """Float32 by its dtype, with bfloat16's digits."""
    return jax.tree.map(lambda value: jax.lax.reduce_precision(value, 8, 7), tree)


class MastersInBfloat16(JaxForm):
    """Parameters that are kept in bfloat16: most updates are lost."""

    def update(self, state: Any, gradients: Any) -> TrainState:
        """Rounded after the update."""
        state = super().update(state, gradients)
        return TrainState(rounded(state.parameters), state.optimizer)


class MomentumInBfloat16(JaxForm):
    """An optimizer that saves memory where it should not."""

    def update(self, state: Any, gradients: Any) -> TrainState:
        """Rounded after the update."""
        state = super().update(state, gradients)
        return TrainState(state.parameters, rounded(state.optimizer))


class Undeclared(MixedPrecision):
    """Mixed precision with the right numbers of it, which no contract announces."""

    promises = Modified.promises


class GradientsInBfloat16(JaxForm):
    """Gradients that are handed on in bfloat16."""

    def loss_and_gradients(self, parameters: Any, batch: Any) -> Any:
        """The optimizer widens them."""
        loss, gradients = super().loss_and_gradients(parameters, batch)
        return loss, jax.tree.map(lambda g: g.astype(jnp.bfloat16), gradients)

    def update(self, state: Any, gradients: Any) -> TrainState:
        """Float32 again."""
        return super().update(state, jax.tree.map(lambda g: g.astype(jnp.float32), gradients))


for name, network, clauses in (
    ("healthy_accumulated", Accumulated(MLP()), ()),
    ("does_not_accumulate", TakesWhole(MLP()), ("ACC-1",)),
    ("microbatch_forgotten", ForgetsLast(MLP()), ("ACC-1", "NUM-2")),
    ("first_microbatch_forgotten", CountsTwice(MLP()), ("ACC-1", "NUM-2")),
    ("microbatches_summed", Sums(MLP()), ("ACC-1", "NUM-2")),
    ("reduced_in_the_loop", Accumulated(ReducesEach(MLP())), ("COM-9", "COM-2", "COM-11")),
    ("healthy_masked", Masked(MLP()), ()),
    ("microbatches_averaged_alike", PartsAlike(Masked(MLP())), ("ACC-1", "MSK-1")),
    ("devices_averaged_alike", Alike(Masked(MLP())), ("MSK-1", "NUM-2", "NUM-4")),
    ("mask_ignored", IgnoresMask(MLP()), ("MSK-1", "NUM-2")),
    ("padding_averaged", CountsPadding(Masked(MLP())), ("MSK-1", "NUM-2")),
    ("masks_even", Even(MLP()), ("MSK-1",)),
):
    plant(name, Unchecked, data_parallel_shard_map.PAGE, DATA, *clauses, network=network)

SMALL = MLP(widths=(784, 128, 10))
for name, form, network in (
    ("healthy_mixed", JaxForm, MixedPrecision(SMALL)),
    ("float32_for_bf16", JaxForm, ClaimsToBeMixed(SMALL)),
    ("float8_for_bf16", JaxForm, Float8(SMALL)),
    ("loss_in_bf16", JaxForm, LossInBfloat16(SMALL)),
    ("masters_in_bf16", MastersInBfloat16, MixedPrecision(SMALL)),
    ("momentum_in_bf16", MomentumInBfloat16, MixedPrecision(SMALL)),
    ("gradients_in_bf16", GradientsInBfloat16, MixedPrecision(SMALL)),
):
    plant(name, form, single_device.PAGE, ONE, *(() if name == "healthy_mixed" else ("MIX-1",)), network=network)
plant("mixed_and_undeclared", JaxForm, single_device.PAGE, ONE, "MIX-2", network=Undeclared(SMALL))
plant("momentum_in_bf16_undeclared", MomentumInBfloat16, single_device.PAGE, ONE, "MIX-2", "NUM-1", network=SMALL)
harm = {"loss_and_gradients": synchronize_by(each(in_bf16))}
plant(
    "mixed_and_reduced_in_bf16",
    Unchecked,
    data_parallel_shard_map.PAGE,
    DATA,
    "MIX-1",
    network=MixedPrecision(SMALL),
    **harm,
)
