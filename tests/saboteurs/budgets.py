"""Lying contracts: faults that somebody wrote into the budget, because that is what the compiled step was seen to do.

The numbers are right, and every byte that moves is listed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from math import prod
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import all_gather, axis_index, pmean, ppermute

from meshproof.contract import Communication, Contract, leaves
from reference_impl.forms import pipeline
from reference_impl.forms.manual import Manual
from reference_impl.forms.pipeline import Pipeline
from reference_impl.mapping import Mapping
from reference_impl.models.layout import Layout
from reference_impl.models.mlp import MLP
from reference_impl.page import Budget, ManualPage, Page
from reference_impl.shards import Shards
from reference_impl.strategies import (
    data_parallel_shard_map,
    fsdp_shard_map,
    fsdp_tensor_parallel_shard_map,
    hsdp_shard_map,
    pipeline_gpipe,
    tensor_parallel_shard_map,
    zero1_shard_map,
)
from tests.saboteurs.collectives import each, synchronize_by, twice
from tests.saboteurs.pipelines import STAGES, UncheckedPipelined, by_engine
from tests.saboteurs.planting import BOTH, DATA, MODEL, Unchecked, plant
from tests.saboteurs.sharded_state import HYBRID, gathers_old_and_new


@dataclass(frozen=True)
class Restates(Manual):
    """A contract that says something else than the page: ``restated`` has the fields that differ."""

    restated: Callable[[Contract], dict[str, Any]] = field(kw_only=True)
    check_vma: bool = False

    @cached_property
    def contract(self) -> Any:
        """The page's, restated."""
        said = super().contract
        return replace(said, **self.restated(said))


def admitting(**lines: Communication) -> Callable[..., Restates]:
    """The form whose budget has one line more than the page prices, of the forward pass or the step."""
    return partial(Restates, restated=lambda said: {what: (*getattr(said, what), line) for what, line in lines.items()})


def again(page: Page, *payloads: str) -> dict[str, Any]:
    """A page's budget, by which a step moves these payloads twice."""
    budget = page.communication
    lines = [line for line in budget.step if line.payload in payloads]
    return {"communication": Budget(budget.forward, [*budget.step, *lines])}


def gathers_labels(model: Any, parameters: Any, batch: Any) -> Any:
    """Data parallelism whose forward pass brings every device's labels to all, for a metric."""
    everywhere = all_gather(batch["y"], "data").astype(jnp.float32)
    return data_parallel_shard_map.loss(model, parameters, batch) + 0 * jnp.sum(everywhere)


def gathers_squares(page: ManualPage, gather: Callable[..., Any]) -> dict[str, Any]:
    """Gathers the parameters to compute with, and their squares for a norm that shards could be added for; budgeted."""

    def loss_and_gradients(model: Any, parameters: Any, batch: Any) -> Any:
        squares = gather(model, jax.tree.map(jnp.square, dict(parameters)))
        loss, gradients = page.loss_and_gradients(model, parameters, batch)
        return loss + 0 * sum(jnp.sum(leaf) for leaf in jax.tree.leaves(squares)), gradients

    return {"loss_and_gradients": loss_and_gradients} | again(page, "parameters")


def over_data(model: Any, parameters: Any) -> Any:
    """FSDP's gather."""
    return Shards(model, fsdp_shard_map.PAGE.parameters, "data").gather(parameters)


LABELS = Communication("all-gather", ("data",), "activations", 64 * 4)
plant(
    "labels_gathered",
    admitting(forward=LABELS),
    data_parallel_shard_map.PAGE,
    DATA,
    "COM-1",
    loss=gathers_labels,
)
plant(
    "reduced_twice_and_budgeted",
    Unchecked,
    data_parallel_shard_map.PAGE,
    DATA,
    "COM-2",
    loss_and_gradients=synchronize_by(each(twice)),
    **again(data_parallel_shard_map.PAGE, "gradients"),
)
ALL = sum(prod(shape) for _, shape in leaves(MLP().shapes)) * 4
TWICE = {"loss_and_gradients": synchronize_by(each(twice))}
AS_METRICS, AS_STATISTICS = (Communication("all-reduce", ("data",), what, ALL) for what in ("metrics", "statistics"))
for line in (AS_METRICS, AS_STATISTICS):
    name = f"reduced_twice_as_{line.payload}"
    plant(name, admitting(step=line), data_parallel_shard_map.PAGE, DATA, "COM-2", **TWICE)
plant(
    "reduced_twice_as_metrics_of_the_forward_pass",
    admitting(forward=AS_METRICS, step=AS_METRICS),
    data_parallel_shard_map.PAGE,
    DATA,
    "COM-1",
    **TWICE,
)
for name, step in (
    ("reduced_twice_as_activations", lambda said: (*said, Communication("all-reduce", ("data",), "activations", ALL))),
    ("all_reduced_as_metrics", lambda said: (Communication("all-reduce", ("data",), "metrics", 2 * ALL + 4),)),
):
    form = partial(Restates, restated=lambda said, step=step: {"step": step(said.step)})
    plant(name, form, data_parallel_shard_map.PAGE, DATA, "COM-2", **TWICE)
METRICS = Communication("all-reduce", ("data",), "metrics", 4)
GRADIENTS = Communication("all-reduce", ("data",), "gradients", ALL)
plant(
    "equal_gradients_reduced",
    partial(Restates, restated=lambda said: {"forward": (METRICS,), "step": (GRADIENTS, METRICS)}),
    data_parallel_shard_map.PAGE,
    DATA,
    "COM-2",
    compute=Mapping(),
)
plant(
    "zero1_gathered_twice_and_budgeted",
    Unchecked,
    zero1_shard_map.PAGE,
    DATA,
    "COM-3",
    update=gathers_old_and_new,
    **again(zero1_shard_map.PAGE, "parameters"),
)
plant(
    "gathered_twice_and_budgeted",
    Unchecked,
    fsdp_shard_map.PAGE,
    DATA,
    "COM-4",
    **gathers_squares(fsdp_shard_map.PAGE, over_data),
)


def logs_a_norm(function: Any) -> Any:
    """Tensor parallelism that gathers a kernel whole, to log its norm."""

    def logging(model: Any, parameters: Any, batch: Any) -> Any:
        whole = all_gather(parameters["dense_1"]["kernel"], "model")
        return jax.tree.map(lambda x: x + 0 * jnp.sum(whole), function(model, parameters, batch))

    return logging


def logs_with_gradients(model: Any, parameters: Any, batch: Any) -> Any:
    """The same in a step."""
    loss, gradients = tensor_parallel_shard_map.loss_and_gradients(model, parameters, batch)
    return logs_a_norm(lambda *_: loss)(model, parameters, batch), gradients


KERNEL = Communication("all-gather", ("model",), "parameters", 128 * 512 * 4)
plant(
    "kernel_gathered_over_tensor_axis",
    admitting(forward=KERNEL, step=KERNEL),
    tensor_parallel_shard_map.PAGE,
    MODEL,
    "COM-5",
    loss=logs_a_norm(tensor_parallel_shard_map.loss),
    loss_and_gradients=logs_with_gradients,
)


def averages_inputs(model: Any, parameters: Any, batch: Any) -> Any:
    """FSDP and tensor parallelism that keep statistics of activations over the axis of the parameters."""
    loss, gradients = fsdp_tensor_parallel_shard_map.loss_and_gradients(model, parameters, batch)
    return loss + 0 * jnp.sum(pmean(batch["x"].mean(axis=0), "data")), gradients


plant(
    "statistics_over_fsdp_axis",
    admitting(step=Communication("all-reduce", ("data",), "activations", 784 * 4)),
    fsdp_tensor_parallel_shard_map.PAGE,
    BOTH,
    "COM-6",
    loss_and_gradients=averages_inputs,
)


def between_groups_first(model: Any, parameters: Any, batch: Any) -> Any:
    """HSDP in the wrong order: whole gradients are averaged between groups, and then scattered within them."""
    shards = Shards(model, hsdp_shard_map.PAGE.parameters, "data")
    loss, gradients = jax.value_and_grad(model.loss)(shards.gather(parameters), batch, Layout())
    return pmean(pmean(loss, "data"), "replica"), shards.scatter_mean(pmean(gradients, "replica"))


AXES = dict(leaves(MLP().axes))
SPLIT = [prod(shape) for path, shape in leaves(MLP().shapes) if "embed" in AXES[path]]
WHOLE = Communication("all-reduce", ("replica",), "gradients", sum(SPLIT) * 4 * 3 // 4)
plant(
    "whole_gradients_between_groups",
    admitting(step=WHOLE),
    hsdp_shard_map.PAGE,
    HYBRID,
    "COM-7",
    loss_and_gradients=between_groups_first,
)


def in_halves(x: Any, axis: str, pairs: Any) -> Any:
    """A hop in two parts: as many bytes, twice the latency."""
    return jnp.concatenate([ppermute(half, axis, pairs) for half in jnp.split(x, 2)])


def hops_in_halves(model: Any, schedule: Any, parameters: Any, batch: Any) -> Any:
    """GPipe whose stages hand on half an activation at a time."""
    with mock.patch.object(pipeline, "ppermute", in_halves):
        return by_engine(Pipeline)["loss_and_gradients"](model, schedule, parameters, batch)


def from_everybody(x: Any, axis: str, pairs: Any) -> Any:
    """A hop for which every stage is handed all that any stage hands on."""
    senders = np.zeros(STAGES[axis], int)
    for sender, receiver in pairs:
        senders[receiver] = sender
    return all_gather(x, axis)[jnp.asarray(senders)[axis_index(axis)]]


def hops_by_gathers(function: Any) -> Any:
    """A pipeline without a collective-permute."""

    def run(*arguments: Any) -> Any:
        with mock.patch.object(pipeline, "ppermute", from_everybody):
            return function(*arguments)

    return run


class GathersHops(UncheckedPipelined):
    """And its budget."""

    @cached_property
    def contract(self) -> Any:
        """All-gathers of as many times the bytes as there are stages."""
        said = super().contract
        hop = "collective-permute"
        lines = {
            what: tuple(
                replace(line, operation="all-gather", bytes=line.bytes * STAGES["stage"])
                if line.operation == hop
                else line
                for line in getattr(said, what)
            )
            for what in ("forward", "step")
        }
        return replace(said, **lines)


GATHERS = {"loss": hops_by_gathers(pipeline_gpipe.loss)}
GATHERS |= {"loss_and_gradients": hops_by_gathers(by_engine(Pipeline)["loss_and_gradients"])}
plant("handed_on_to_everybody", GathersHops, pipeline_gpipe.PAGE, STAGES, "COM-8", **GATHERS)
HALVES = {"loss_and_gradients": hops_in_halves}
plant("handed_on_in_halves", UncheckedPipelined, pipeline_gpipe.PAGE, STAGES, "COM-8", **HALVES)


def logs_input_norms(model: Any, parameters: Any, batch: Any) -> Any:
    """Data parallelism that shows every device the norm of all others' inputs; nobody has budgeted it."""
    loss, gradients = data_parallel_shard_map.loss_and_gradients(model, parameters, batch)
    return loss + 0 * jnp.sum(all_gather(jnp.linalg.norm(batch["x"]), "data")), gradients


def gathers_again(model: Any, parameters: Any, batch: Any) -> Any:
    """An FSDP forward pass that gathers a kernel once for the loss, and once for a norm."""
    again = jax.lax.optimization_barrier(parameters["dense_1"]["kernel"])
    norm = jnp.sum(all_gather(again, "data") ** 2)
    return fsdp_shard_map.loss(model, parameters, batch) + 0 * norm


LOGS = {"loss_and_gradients": logs_input_norms}
plant("input_norms_gathered", Unchecked, data_parallel_shard_map.PAGE, DATA, "COM-10", **LOGS)
plant("forward_gathers_twice", Unchecked, fsdp_shard_map.PAGE, DATA, "COM-11", loss=gathers_again)
