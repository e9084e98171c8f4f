"""Bent truths: faults that somebody adjusted the truth to, as recorded results are recorded anew.

Each case equals its own truth. What does not hold is what two of them have to do with each other.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from reference_impl.forms.annotated import JaxForm
from reference_impl.forms.base import Form
from reference_impl.forms.drawing import Drawing
from reference_impl.forms.manual import Manual
from reference_impl.forms.nnx_form import NnxForm
from reference_impl.models.gpt import GPT
from reference_impl.models.mlp import MLP
from reference_impl.modifiers.accumulation import Accumulated
from reference_impl.strategies import data_parallel, data_parallel_shard_map, fsdp_tensor_parallel
from reference_impl.truth import Adam, MLPTruth, Momentum, Optimizer
from reference_impl.truth.gpt import GPTTruth
from tests.saboteurs.planting import BOTH, DATA, Unchecked, plant
from tests.saboteurs.transformers import TALL


def trained_by(optimizer: Optimizer, form: type[Form], **given: Any) -> Any:
    """A form with this optimizer, and its truth with the same."""
    return lambda page, axes, _, **network: form(page, axes, optimizer, **given, **network)


plant("frameworks_apart", JaxForm, data_parallel.PAGE, DATA)
form = trained_by(Momentum(decay=0.8), NnxForm)
plant("frameworks_apart", form, data_parallel.PAGE, DATA, "NUM-8", another_case=True)
slow, fast = (trained_by(Momentum(learning_rate=rate), JaxForm) for rate in (0.02, 0.04))  # the linear scaling rule
plant("rate_grows_with_data_axis", slow, fsdp_tensor_parallel.PAGE, BOTH, "SHD-7")
plant("rate_grows_with_data_axis", fast, fsdp_tensor_parallel.PAGE, TALL, "SHD-7", another_case=True)


class DrawnByMesh(GPTTruth):
    """Masks as eight devices draw them."""

    def drop(self, y: Any, step: int, site: int) -> Any:
        """Other sites."""
        return super().drop(y, step, site + 8)


class DrawsByMesh(GPT):
    """Dropout masks that depend on how many devices there are, but not on which of them draws."""

    def drop(self, y: Any, key: Any, site: int) -> Any:
        """The number of devices is added to what the key is folded with."""
        return super().drop(y, key, site + jax.sharding.get_abstract_mesh().size)

    def truth(self, optimizer: Optimizer) -> GPTTruth:
        """That of the same masks."""
        return DrawnByMesh(optimizer=optimizer, **vars(self))


form = trained_by(Adam(), Drawing, variant="dropout", batch_size=16)
plant("draws_by_mesh", form, data_parallel.PAGE, DATA, "NUM-9", network=DrawsByMesh(blocks=1, dropout=0.1))


class Summing(MLPTruth):
    """Gradients of four microbatches, added up."""

    def loss_and_gradients(self, *given: Any) -> Any:
        """Four times the mean."""
        loss, gradients = super().loss_and_gradients(*given)
        return loss, {path: gradient * 4 for path, gradient in gradients.items()}


class Sums(Accumulated):
    """A mean loss, and the sum of the microbatches' gradients."""

    def value_and_grad(self, loss: Any) -> Any:
        """Too long by the number of microbatches."""
        mean = super().value_and_grad(loss)

        def summed(*arguments: Any) -> Any:
            value, gradients = mean(*arguments)
            return value, jax.tree.map(lambda gradient: gradient * self.microbatches, gradients)

        return summed

    def truth(self, optimizer: Optimizer) -> MLPTruth:
        """That of the sum."""
        return Summing(optimizer=optimizer)


plant("microbatches_added_up", Unchecked, data_parallel_shard_map.PAGE, DATA)
form = trained_by(Momentum(), Manual, variant="accumulated", check_vma=False)
plant(
    "microbatches_added_up", form, data_parallel_shard_map.PAGE, DATA, "ACC-1", network=Sums(MLP()), another_case=True
)


class AllAlike(MLPTruth):
    """Batches in which every eighth is the first: devices that never meet could not be told apart."""

    def batches(self, count: int, batch: int) -> Any:
        """Eight times the same examples."""
        drawn = super().batches(count, batch)
        return tuple({name: np.concatenate([v[: batch // 8]] * 8) for name, v in one.items()} for one in drawn)


class FedAlike(MLP):
    """A model whose truth draws them."""

    def truth(self, optimizer: Optimizer) -> MLPTruth:
        """That truth."""
        return AllAlike(self.widths, self.criterion, optimizer)


plant("examples_all_alike", JaxForm, data_parallel.PAGE, DATA, "ERR-2", network=FedAlike())
