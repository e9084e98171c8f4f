"""Faults in pipelines: in what is handed on, in what is kept, and in the schedule."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from jax.lax import optimization_barrier, ppermute, psum

from meshproof.contract import Slot
from reference_impl.forms.pipeline import DIRECTIONS, NONE, Hop, Pipeline, Row
from reference_impl.forms.pipelined import Pipelined
from reference_impl.models.layout import Layout
from reference_impl.strategies import pipeline_1f1b, pipeline_gpipe, pipeline_interleaved, pipeline_zero_bubble
from reference_impl.theory.schedules import Schedule, gpipe, order, timetable, units, zero_bubble
from tests.saboteurs.planting import plant

STAGES = {"stage": 4}
DIRECTION, MICROBATCH, DEPTH, ACTIVATION, GRADIENT = map(
    Row._fields.index, ("direction", "microbatch", "depth", "activation", "gradient")
)
WEIGHTS = DIRECTIONS.index("weights")


@dataclass(frozen=True)
class UncheckedPipelined(Pipelined):
    """Without JAX's own check of what varies: faults reach the suites."""

    check_vma: bool = False


def by_engine(engine: type[Pipeline], sums_head: bool = True) -> Any:
    """GPipe's loss and gradients by another engine."""

    def loss_and_gradients(model: Any, schedule: Any, parameters: Any, batch: Any) -> Any:
        value, gradients = engine(model, schedule, Layout()).run(parameters, batch)
        ends = {"input": psum(gradients["input"], "stage")}
        ends |= {"head": psum(gradients["head"], "stage")} if sums_head else {}
        return psum(value, "stage"), {**gradients, **ends}

    return {"loss_and_gradients": loss_and_gradients}


class HandsBack(Pipeline):
    """Every stage hands on to the one before it."""

    def hop(self, ticks: range, *permutes: Any) -> Hop:
        """Against the stream."""
        right = super().hop(ticks, *permutes)
        return right._replace(permutes=tuple(tuple((to, of) for of, to in pairs) for pairs in right.permutes))


class TakesStale(Pipeline):
    """Every stage takes the activation of the tick before."""

    @cached_property
    def rows(self) -> np.ndarray:
        """The places of activations come a tick late."""
        rows = super().rows.copy()
        rows[1:, :, ACTIVATION] = rows[:-1, :, ACTIVATION]
        return rows


class DropsLast(Pipeline):
    """The last microbatch never reaches the last stage."""

    @cached_property
    def rows(self) -> np.ndarray:
        """Idle instead."""
        rows = super().rows.copy()
        is_dropped = rows[..., MICROBATCH] == self.schedule.microbatches - 1
        rows[..., DEPTH][is_dropped & (rows[..., DEPTH] == self.schedule.depths - 1)] = NONE
        return rows


class CountsTwice(Pipeline):
    """The last microbatch is taken for the one before it, too."""

    @cached_property
    def rows(self) -> np.ndarray:
        """As many microbatches, of fewer examples."""
        rows = super().rows.copy()
        last = self.schedule.microbatches - 1
        rows[..., MICROBATCH][rows[..., MICROBATCH] == last - 1] = last
        return rows


class KeepsEverything(Pipeline):
    """A place for each microbatch of each chunk, as if none were ever free again."""

    @cached_property
    def places(self) -> Any:
        """A number of its own; and behind them the places of gradients."""
        right, chunks = super().places, self.schedule.chunks
        behind = self.schedule.microbatches * chunks

        def own(number: int, depth: int) -> int:
            return number * chunks + depth // self.schedule.stages

        return {work: own(*work[1:]) if work[0] == "forward" else behind + right[work] for work in right}


class LosesWeights(Pipeline):
    """The weights of the last microbatch are never come back to."""

    @cached_property
    def rows(self) -> np.ndarray:
        """Idle instead."""
        rows = super().rows.copy()
        is_lost = (rows[..., DIRECTION] == WEIGHTS) & (rows[..., MICROBATCH] == self.schedule.microbatches - 1)
        for column in (DEPTH, GRADIENT):
            rows[..., column][is_lost] = NONE
        return rows


class MixesWeights(Pipeline):
    """Weights take the gradient that waits with the activation of another microbatch."""

    @cached_property
    def rows(self) -> np.ndarray:
        """The activations of the weights' slots before."""
        rows = super().rows.copy()
        for own in np.moveaxis(rows, 1, 0):
            of_weights = own[:, DIRECTION] == WEIGHTS
            own[of_weights, ACTIVATION] = np.roll(own[of_weights, ACTIVATION], 1)
        return rows


class ForgetsWaiting(Pipeline):
    """A gradient's place is given away as soon as it was handed on, and its weights take what lies there."""

    @cached_property
    def places(self) -> Any:
        """One place for all gradients."""
        right = super().places
        return {work: right[work] if work[0] == "forward" else max(right.values()) + 1 for work in right}


class HopsBothWays(Pipeline):
    """Every tick hands on both ways, also where nothing comes from there."""

    def hops(self, ticks: range) -> list[Hop]:
        """The two permutes of the whole schedule."""
        return [self.hop(range(self.schedule.ticks), ["forward"], ["backward"])]


def carries_parameters(model: Any, schedule: Any, parameters: Any, batch: Any) -> Any:
    """GPipe whose stages hand their layers round, and back."""
    around = [(i, (i + 1) % 4) for i in range(4)]
    there = optimization_barrier(ppermute(parameters["up"], "stage", around))
    back = ppermute(there, "stage", [(j, i) for i, j in around])
    return by_engine(Pipeline)["loss_and_gradients"](model, schedule, {**parameters, "up": back}, batch)


def pausing(stages: int, microbatches: int) -> Schedule:
    """GPipe that rests for a tick before it goes back."""
    slots = gpipe(stages, microbatches).slots
    later = (replace(slot, tick=slot.tick + (slot.direction == "backward")) for slot in slots)
    return Schedule(stages, tuple(later))


def lazy(stages: int, microbatches: int) -> Schedule:
    """GPipe that begins with a microbatch in every second tick only: as many hops as ticks, and a budget for each."""
    slots = gpipe(stages, microbatches).slots
    half = 2 * (microbatches - 1) + stages

    def later(slot: Slot) -> Slot:
        if slot.direction == "forward":
            return replace(slot, tick=2 * slot.microbatch + slot.stage)
        return replace(slot, tick=half + 2 * (microbatches - 1 - slot.microbatch) + stages - 1 - slot.stage)

    return Schedule(stages, tuple(sorted(map(later, slots), key=lambda slot: (slot.tick, slot.stage))))


def weights_at_once(stages: int, microbatches: int) -> Schedule:
    """Zero bubble whose stages all do the weights behind the backward: the stages before wait for them."""
    forwards = units(stages, microbatches, 1)
    return timetable(order(forwards, forwards, stages - stage, weights_wait=0) for stage in range(stages))


class BothWays(Schedule):
    """Budgets for two hops in every tick."""

    @cached_property
    def hops(self) -> int:
        """Also where nothing comes from there."""
        return 2 * self.ticks


def hopping_both_ways(stages: int, microbatches: int) -> Schedule:
    """Zero bubble, with such a budget."""
    return BothWays(stages, zero_bubble(stages, microbatches).slots)


class Lazy(UncheckedPipelined):
    """A lazy step, and a forward pass that is not."""

    @cached_property
    def contract(self) -> Any:
        """The step's budget is that of its schedule; the forward pass's is GPipe's."""
        forward = Pipelined(pipeline_gpipe.PAGE, self.mesh_axes, self.optimizer).contract.forward
        return replace(super().contract, forward=forward)


class LeavesOut(UncheckedPipelined):
    """Shows a schedule without its last slot: a microbatch is never taken back, or its weights are left out."""

    @cached_property
    def schedule(self) -> Any:
        """All but the last slot."""
        return super().schedule[:-1]


class TooSoon(UncheckedPipelined):
    """Shows a schedule in which the last weights of the first stage come before their backward."""

    @cached_property
    def schedule(self) -> Any:
        """These two slots have changed places."""
        slots = super().schedule
        *_, backward, weights = (slot for slot in slots if slot.stage == 0)
        swapped = {backward: replace(backward, tick=weights.tick), weights: replace(weights, tick=backward.tick)}
        return tuple(swapped.get(slot, slot) for slot in slots)


@dataclass(frozen=True)
class Silent(UncheckedPipelined):
    """Runs with too few microbatches, without a word."""

    microbatches: int = 2

    @property
    def timetable(self) -> Schedule:
        """Warns nobody."""
        with warnings.catch_warnings(action="ignore"):
            return super().timetable

    def forward(self, parameters: Any, batch: Any) -> Any:
        """Nor here."""
        with warnings.catch_warnings(action="ignore"):
            return super().forward(parameters, batch)


class DropsRemainder(UncheckedPipelined):
    """Drops the examples that fill no microbatch, without a word."""

    def shard_batch(self, batch: Any) -> Any:
        """All whole microbatches."""
        return super().shard_batch(
            {name: v[: len(v) // self.microbatches * self.microbatches] for name, v in batch.items()}
        )


plant("healthy_gpipe", UncheckedPipelined, pipeline_gpipe.PAGE, STAGES, **by_engine(Pipeline))
plant("healthy_1f1b", UncheckedPipelined, pipeline_1f1b.PAGE, STAGES, **by_engine(Pipeline))
for name, engine, clauses in (
    ("handed_back", HandsBack, ("NUM-2", "NUM-3")),
    ("stale_activation", TakesStale, ("NUM-2", "NUM-4")),
    ("microbatch_dropped", DropsLast, ("NUM-2", "NUM-4")),
    ("microbatch_counted_twice", CountsTwice, ("NUM-2", "NUM-4")),
):
    plant(name, UncheckedPipelined, pipeline_gpipe.PAGE, STAGES, *clauses, **by_engine(engine))
UNSUMMED = by_engine(Pipeline, sums_head=False)
plant(
    "head_gradient_not_summed", UncheckedPipelined, pipeline_gpipe.PAGE, STAGES, "NUM-2", "NUM-6", "COM-2", **UNSUMMED
)
HANDED_ROUND = {"loss_and_gradients": carries_parameters}
plant("parameters_handed_round", UncheckedPipelined, pipeline_gpipe.PAGE, STAGES, "COM-8", "COM-11", **HANDED_ROUND)
plant("gpipe_buffers_in_1f1b", UncheckedPipelined, pipeline_1f1b.PAGE, STAGES, "MEM-5", **by_engine(KeepsEverything))
KEEPS = by_engine(KeepsEverything)
plant("interleaved_keeps_all", UncheckedPipelined, pipeline_interleaved.PAGE, STAGES, "MEM-5", **KEEPS)
plant("pausing_schedule", UncheckedPipelined, pipeline_gpipe.PAGE, STAGES, "PIP-1", make_schedule=pausing)
plant("lazy_schedule", Lazy, pipeline_gpipe.PAGE, STAGES, "PIP-1", make_schedule=lazy)
plant("schedule_leaves_out", LeavesOut, pipeline_gpipe.PAGE, STAGES, "PIP-1")
plant("starved_in_silence", Silent, pipeline_gpipe.PAGE, STAGES, "ERR-1")
plant("remainder_dropped", DropsRemainder, pipeline_gpipe.PAGE, STAGES, "ERR-1")
plant("healthy_zero_bubble", UncheckedPipelined, pipeline_zero_bubble.PAGE, STAGES, **by_engine(Pipeline))
for name, engine, clauses in (
    ("weights_lost", LosesWeights, ("NUM-2", "NUM-4")),
    ("weights_mixed", MixesWeights, ("NUM-2", "NUM-4")),
    ("waiting_gradient_forgotten", ForgetsWaiting, ("NUM-2", "NUM-4")),
    ("gpipe_buffers_in_zero_bubble", KeepsEverything, ("MEM-5",)),
):
    plant(name, UncheckedPipelined, pipeline_zero_bubble.PAGE, STAGES, *clauses, **by_engine(engine))
HOPPING = {"make_schedule": hopping_both_ways, **by_engine(HopsBothWays)}
plant("hops_both_ways", UncheckedPipelined, pipeline_zero_bubble.PAGE, STAGES, "COM-8", **HOPPING)
plant("weights_at_once", UncheckedPipelined, pipeline_zero_bubble.PAGE, STAGES, "PIP-1", make_schedule=weights_at_once)
plant("weights_too_soon", TooSoon, pipeline_zero_bubble.PAGE, STAGES, "PIP-1")
plant("schedule_leaves_out_weights", LeavesOut, pipeline_zero_bubble.PAGE, STAGES, "PIP-1")
