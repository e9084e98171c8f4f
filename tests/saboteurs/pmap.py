"""Faults in ``pmap`` and in evaluation: synchronization, device dimensions, replicas, means of means."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import jax.numpy as jnp
from flax import jax_utils
from jax.lax import pmean, psum

from reference_impl.evaluation import NO_CLASS
from reference_impl.forms.evaluated import EvaluatedForm
from reference_impl.forms.pmap_frameworks import JaxPmap, LinenPmap, ScoredLinenPmap
from reference_impl.models.mlp import MLP
from reference_impl.modifiers.masking import Masked
from reference_impl.strategies import data_parallel, data_parallel_pmap
from reference_impl.strategies.data_parallel_shard_map import average
from tests.saboteurs.modifiers import Even
from tests.saboteurs.planting import DATA, plant


def forgets_gradients(local: Any, parameters: Any, batch: Any) -> Any:
    """The tutorials' classic: the loss is averaged and looks well, the gradients are not."""
    loss, gradients = local.loss_and_gradients(parameters, batch)
    return pmean(loss, "data"), gradients


def sums_gradients(local: Any, parameters: Any, batch: Any) -> Any:
    """A learning rate that is eight times too large."""
    loss, gradients = local.loss_and_gradients(parameters, batch)
    return pmean(loss, "data"), psum(gradients, "data")


def averages_gradients(local: Any, parameters: Any, batch: Any) -> Any:
    """The tutorials' ``pmean``, of masked means: a device counts alike, however few its examples."""
    return pmean(local.loss_and_gradients(parameters, batch), "data")


def scores_alone(local: Any, parameters: Any, batch: Any) -> Any:
    """A step that reports the accuracy of the first device's examples."""
    (loss, accuracy), gradients = local.loss_and_gradients(parameters, batch)
    loss, gradients = average((loss, gradients), local.count(batch))
    return (loss, accuracy), gradients


def averages_means(local_totals: Any) -> Any:
    """Every device's own mean counts alike, however few its examples."""
    return {
        name: (pmean(value / jnp.maximum(number, 1), "data") * psum(number, "data"), psum(number, "data"))
        for name, (value, number) in local_totals.items()
    }


class DealsExamples(JaxPmap):
    """A loader that deals the examples out in turn: the same shapes and, over a whole batch, the same numbers."""

    def shard_batch(self, batch: Any) -> Any:
        """Device d gets the examples d, d + 8, …, and not its own share."""
        self.check_divides(batch)
        shares = {field: v.reshape(-1, 8, *v.shape[1:]).swapaxes(0, 1) for field, v in batch.items()}
        return super().shard_batch({field: v.reshape(-1, *v.shape[2:]) for field, v in shares.items()})


class Unguarded(JaxPmap):
    """JAX's own pmap, with JAX's own words about a missing device dimension, or none."""

    def per_device(self, function: Any, **options: Any) -> Any:
        """No check before it."""
        return super().per_device(function, **options).pmapped


class ReplicatesByDefault(LinenPmap):
    """Replicas on a mesh axis that Flax names, which is not pmap's."""

    def replicate(self, state: Any) -> Any:
        """As most tutorials have it."""
        return jax_utils.replicate(state)


class CountsPadding(EvaluatedForm):
    """An evaluation that takes the padding for examples of the first class."""

    @cached_property
    def totals(self) -> Any:
        """Without a mask."""
        totals = super().totals
        return lambda state, batch: totals(state, dict(batch) | {"y": jnp.where(batch["y"] == NO_CLASS, 0, batch["y"])})


plant("healthy_pmap", JaxPmap, data_parallel_pmap.PAGE, DATA)
plant("healthy_linen_pmap", LinenPmap, data_parallel_pmap.PAGE, DATA)
plant("healthy_evaluation", EvaluatedForm, data_parallel.PAGE, DATA)
for name, harm, clauses in (
    ("pmap_without_pmean", {"loss_and_gradients": forgets_gradients}, ("ERR-2", "NUM-6", "NUM-2", "COM-2")),
    ("pmap_sum_for_mean", {"loss_and_gradients": sums_gradients}, ("NUM-2", "NUM-3")),
    ("mean_of_means", {"evaluate": averages_means}, ("MSK-1",)),
):
    plant(name, JaxPmap, data_parallel_pmap.PAGE, DATA, *clauses, **harm)
plant("healthy_scored_pmap", ScoredLinenPmap, data_parallel_pmap.PAGE, DATA)
plant(
    "accuracy_of_one_device", ScoredLinenPmap, data_parallel_pmap.PAGE, DATA, "NUM-4", loss_and_gradients=scores_alone
)
plant("pmap_examples_dealt_out", DealsExamples, data_parallel_pmap.PAGE, DATA, "SHD-4", "ERR-2")
plant("pmap_unguarded", Unguarded, data_parallel_pmap.PAGE, DATA, "ERR-1")
plant("replicas_under_another_name", ReplicatesByDefault, data_parallel_pmap.PAGE, DATA, "CMP-1")
plant("pmap_masks_even", JaxPmap, data_parallel_pmap.PAGE, DATA, "MSK-1", network=Even(MLP()))
MASKED = {"loss_and_gradients": averages_gradients, "network": Masked(MLP())}
plant("pmap_mean_of_masked_means", JaxPmap, data_parallel_pmap.PAGE, DATA, "MSK-1", "NUM-2", **MASKED)
plant("healthy_masked_pmap", JaxPmap, data_parallel_pmap.PAGE, DATA, network=Masked(MLP()))
plant("padding_counted", CountsPadding, data_parallel.PAGE, DATA, "MSK-1")
