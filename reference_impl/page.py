"""What a page of the book is: where a strategy places everything, what it moves, and what each device computes.

An annotated strategy is its mappings and its budget, and the compiler does the rest. By hand it also has a program:
`Page.by_hand` and the like join the two.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any

import jax

from meshproof.contract import Batch, Operation, Payload, Tree
from reference_impl.evaluation import Totals
from reference_impl.mapping import Mapping, MeshAxes
from reference_impl.models import Model
from reference_impl.models.staged import Staged
from reference_impl.theory.schedules import Schedule


@dataclass(frozen=True)
class Line:
    """One symbolic line of a page's budget: what moves, by which logical operation, over which mesh axes.

    ``dtype`` is what it moves in, where that is not the model's to say.
    """

    operation: Operation
    payload: Payload
    over: MeshAxes
    dtype: str | None = None

    def __str__(self) -> str:
        return f"{self.operation} of {self.payload} over {'×'.join(self.over)}"


@dataclass(frozen=True)
class Budget:
    """A page's budget: the forward pass, and the whole train step."""

    forward: list[Line] = field(default_factory=list)
    step: list[Line] = field(default_factory=list)


def all_gather(payload: Payload, over: str | MeshAxes, dtype: str | None = None) -> Line:
    """Every device gets the shards of all others, along one mesh axis or several at once."""
    return replace(along("all-gather", payload, over), dtype=dtype)


def all_reduce(payload: Payload, over: str | MeshAxes, dtype: str | None = None) -> Line:
    """Every device gets the sum over all, along one mesh axis or several at once."""
    return replace(along("all-reduce", payload, over), dtype=dtype)


def reduce_scatter(payload: Payload, over: str | MeshAxes) -> Line:
    """Every device gets its shard of the sum over all, along one mesh axis or several at once."""
    return along("reduce-scatter", payload, over)


def all_to_all(payload: Payload, over: str | MeshAxes) -> Line:
    """Every device gets its part of what each of the others has, along one mesh axis or several at once."""
    return along("all-to-all", payload, over)


def collective_permute(payload: Payload, over: str) -> Line:
    """Every device sends to one other, as one stage to the next."""
    return along("collective-permute", payload, over)


def along(operation: Operation, payload: Payload, over: str | MeshAxes) -> Line:
    """A line over one mesh axis, by its name, or several."""
    return Line(operation, payload, (over,) if isinstance(over, str) else over)


LossAndGradients = tuple[jax.Array, Tree]
"""A scalar loss, and its gradients as a tree of the parameters."""


@dataclass(frozen=True)
class Local:
    """What one device computes under ``pmap`` of its own examples, of parameters as any framework has them.

    Mean loss; that loss and its gradients; and the number of examples that both are the mean of.
    """

    loss: Callable[[Any, Batch], jax.Array]
    loss_and_gradients: Callable[[Any, Batch], tuple[jax.Array, Any]]
    count: Callable[[Batch], int | jax.Array]


Optimize = Callable[[Tree, Any, Tree], tuple[Tree, Any]]
"""The optimizer, leaf by leaf: from parameters, state and gradients to new parameters and state."""

Loss = Callable[[Model, Tree, Batch], jax.Array]
Differentiate = Callable[[Model, Tree, Batch], LossAndGradients]
Update = Callable[[Model, Optimize, Tree, Any, Tree], tuple[Tree, Any]]
MakeSchedule = Callable[[int, int], Schedule]
StagesLoss = Callable[[Staged, Schedule, Tree, Batch], jax.Array]
DifferentiateStages = Callable[[Staged, Schedule, Tree, Batch], LossAndGradients]
DifferentiateGroups = Callable[[Callable[..., Any], Tree, Batch, int], LossAndGradients]


@dataclass(frozen=True)
class Page:
    """An annotated strategy: which mesh axes split which logical axes, and what a step moves because of that.

    ``compute`` is the mapping of activations, and of parameters while they are computed with; ``parameters``,
    ``gradients`` and ``optimizer`` are those at rest. A fault is planted by ``replace(page, optimizer=Mapping())``.
    """

    name: str
    compute: Mapping
    parameters: Mapping
    gradients: Mapping
    optimizer: Mapping
    communication: Budget

    def by_hand(self, loss: Loss, loss_and_gradients: Differentiate, update: Update | None = None) -> ManualPage:
        """This table, and what a device computes in ``shard_map``."""
        return ManualPage(**self.table, loss=loss, loss_and_gradients=loss_and_gradients, update=update)

    def in_stages(
        self, make_schedule: MakeSchedule, loss: StagesLoss, loss_and_gradients: DifferentiateStages
    ) -> PipelinePage:
        """This table, a schedule, and what a device computes by it in ``shard_map``."""
        return PipelinePage(**self.table, make_schedule=make_schedule, loss=loss, loss_and_gradients=loss_and_gradients)

    def in_groups(self, within: Mapping, loss_and_gradients: DifferentiateGroups) -> HybridPage:
        """This table, and how the gradients of groups of devices meet."""
        return HybridPage(**self.table, within=within, loss_and_gradients=loss_and_gradients)

    def by_pmap(
        self,
        loss: Callable[[Local, Any, Batch], jax.Array],
        loss_and_gradients: Callable[[Local, Any, Batch], tuple[jax.Array, Any]],
        evaluate: Callable[[Totals], Totals],
    ) -> PmapPage:
        """This table, and what a device computes in ``pmap``."""
        return PmapPage(**self.table, loss=loss, loss_and_gradients=loss_and_gradients, evaluate=evaluate)

    @property
    def table(self) -> dict[str, Any]:
        """The fields that every kind of page has."""
        return {field.name: getattr(self, field.name) for field in fields(Page)}


@dataclass(frozen=True)
class ManualPage(Page):
    """A strategy by hand. Its functions see what one device has: shards of the parameters and of the batch.

    ``update(model, optimize, parameters, state, gradients)`` calls ``optimize`` on what its device updates; without it
    every device updates the shards that it holds.
    """

    loss: Loss
    loss_and_gradients: Differentiate
    update: Update | None = None


@dataclass(frozen=True)
class PipelinePage(Page):
    """A pipeline by hand: ``make_schedule(stages, microbatches)``, and functions that run a model by a schedule."""

    make_schedule: MakeSchedule
    loss: StagesLoss
    loss_and_gradients: DifferentiateStages


@dataclass(frozen=True)
class HybridPage(Page):
    """An annotated strategy of groups of devices, each of which computes by the mapping ``within``.

    ``loss_and_gradients(one_group, parameters, batch, groups)`` is of the whole batch, ``one_group(parameters, batch)``
    of the examples of one of the ``groups``.
    """

    within: Mapping
    loss_and_gradients: DifferentiateGroups


@dataclass(frozen=True)
class PmapPage(Page):
    """A strategy under ``pmap``. Its functions see what one device has; ``evaluate`` adds the devices' totals."""

    loss: Callable[[Local, Any, Batch], jax.Array]
    loss_and_gradients: Callable[[Local, Any, Batch], tuple[jax.Array, Any]]
    evaluate: Callable[[Totals], Totals]
