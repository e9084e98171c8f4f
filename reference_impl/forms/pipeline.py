"""The engine of every pipeline: in each tick every stage does what its row of the schedule says, then all of them send.

A tick is one forward or one backward of one microbatch through one chunk of layers, followed by one collective-permute;
or by two, one in each direction, where a stage may receive an activation and a gradient at once. A stage stores what it
receives until its last use: an activation until its backward, which recomputes the forward from it. Where gradients of
weights have slots of their own, such a slot recomputes both, so that both are stored until then.

If all slots of a tick have one direction, every stage runs that function; an idle stage computes garbage that is
discarded. Otherwise each stage takes a branch. A collective must not stand in a branch that other devices do not take:
a stage that communicates needs a schedule that never mixes directions in a tick.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import count
from typing import Any, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import axis_index, cond, dynamic_slice_in_dim, dynamic_update_index_in_dim, ppermute, scan, switch

from meshproof.contract import Batch, Direction, Tree
from reference_impl.mapping import Axes
from reference_impl.models.layout import Layout
from reference_impl.models.staged import Staged
from reference_impl.theory.schedules import Schedule, Work

STAGE = "stage"
NONE = -1
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)


class Row(NamedTuple):
    """What one stage does in one tick, as integers.

    ``direction`` is an index into `DIRECTIONS`, ``depth`` that of its chunk of layers, `NONE` where it is idle.
    ``activation`` and ``gradient`` are the places of its inputs in its store, ``new_activation`` and ``new_gradient``
    those of what it receives at the end.
    """

    direction: Any = 0
    microbatch: Any = 0
    depth: Any = NONE
    activation: Any = NONE
    gradient: Any = NONE
    new_activation: Any = NONE
    new_gradient: Any = NONE


class Hop(NamedTuple):
    """What all stages share in a tick: the directions of its slots, and each permute's pairs (sender, receiver)."""

    directions: tuple[Direction, ...]
    permutes: tuple[tuple[tuple[int, int], ...], ...]


class Carry(NamedTuple):
    """What a stage keeps from tick to tick: its store of places, its parts of the loss and of the gradients."""

    store: jax.Array
    loss: jax.Array
    gradients: Any


@dataclass(frozen=True)
class Pipeline:
    """A model in stages along the mesh axis ``stage``, run by a schedule; ``layout`` is that of every stage."""

    model: Staged
    schedule: Schedule
    layout: Layout

    def run(self, parameters: Tree, batch: Batch) -> tuple[jax.Array, Tree]:
        """This stage's parts of the mean loss over this device's examples and of its gradients: sum them over stages.

        Parameters that are not split over the stages must be ``varying``, otherwise their gradient is psum-ed in every
        tick.
        """
        count_M = self.schedule.microbatches
        examples = {name: value.reshape(count_M, -1, *value.shape[1:]) for name, value in batch.items()}
        sent = jax.eval_shape(partial(self.model.enter, layout=self.layout), parameters, examples["x"][0])
        store = jnp.zeros_like(sent, shape=(1 + max(self.places.values(), default=0), *sent.shape))
        carry = Carry(store, jnp.zeros_like(sent, shape=()), jax.tree.map(jnp.zeros_like, dict(parameters)))
        for phase in filter(len, self.schedule.phases):
            hops = self.hops(phase)
            rows = self.rows[phase.start : phase.stop].reshape(-1, len(hops), *self.rows.shape[1:])
            own = jnp.moveaxis(jnp.asarray(rows)[:, :, axis_index(STAGE)], -1, 0)
            carry, _ = scan(partial(self.period, hops, parameters, examples), carry, Row(*own))
        return carry.loss, carry.gradients

    def period(self, hops: list[Hop], parameters: Tree, examples: Batch, carry: Carry, rows: Row) -> tuple[Carry, None]:
        """One period of consecutive ticks: the body of the scan."""
        for i, hop in enumerate(hops):
            carry = self.tick(hop, parameters, examples, carry, Row(*(column[i] for column in rows)))
        return carry, None

    def tick(self, hop: Hop, parameters: Tree, examples: Batch, carry: Carry, row: Row) -> Carry:
        """One slot of each stage, then the permutes. Forwards add to the loss, backwards to the gradients."""
        compute = partial(self.compute, examples, row)

        def taken() -> jax.Array:
            return carry.store[row.activation]

        def pull_back(function: Callable[..., Any], *inputs: Any) -> tuple[Any, ...]:
            (_, loss), pullback = jax.vjp(function, *inputs)
            gradient = jnp.where(row.gradient == NONE, 0, carry.store[row.gradient])
            return pullback((gradient, jnp.ones_like(loss)))

        def forward() -> tuple[jax.Array, jax.Array, Any]:
            with jax.named_scope("forward"):
                sent, loss = compute(parameters, taken())
                return sent, carry.loss + loss, carry.gradients

        def backward() -> tuple[jax.Array, jax.Array, Any]:
            if self.schedule.has_weights:
                (sent,) = pull_back(partial(compute, parameters), taken())
                return sent, carry.loss, carry.gradients
            own, sent = pull_back(compute, parameters, taken())
            return sent, carry.loss, jax.tree.map(jnp.add, carry.gradients, own)

        def weights() -> tuple[jax.Array, jax.Array, Any]:
            (own,) = pull_back(lambda parameters: compute(parameters, taken()), parameters)
            return taken(), carry.loss, jax.tree.map(jnp.add, carry.gradients, own)

        ways = {"forward": forward, "backward": backward, "weights": weights}
        branch = [hop.directions.index(way) if way in hop.directions else 0 for way in DIRECTIONS]
        sent, loss, gradients = switch(jnp.asarray(branch)[row.direction], [ways[way] for way in hop.directions])
        store, places = carry.store, [row.new_activation, row.new_gradient]
        for pairs, place in zip(hop.permutes, places if len(hop.permutes) > 1 else [jnp.maximum(*places)], strict=True):
            arrived = ppermute(sent, STAGE, pairs) if pairs else sent
            kept = jnp.where(place == NONE, store[place], arrived)
            store = dynamic_update_index_in_dim(store, kept, place, 0)
        return Carry(store, loss, gradients)

    def compute(
        self, examples: Batch, row: Row, parameters: Tree, activation: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """What a stage sends; and the microbatch's part of the loss, which is zero before the last depth."""

        def own_chunk(leaf: jax.Array, axes: Axes) -> jax.Array:
            if "layers" not in axes:
                return leaf
            size = len(leaf) // self.schedule.chunks
            return dynamic_slice_in_dim(leaf, row.depth // self.schedule.stages * size, size)

        @jax.checkpoint  # the examples are at hand: no copy of them is kept for the backward
        def enter(parameters: Tree) -> jax.Array:
            return self.model.enter(parameters, examples["x"][row.microbatch], self.layout)

        def leave() -> jax.Array:
            logits = self.model.leave(parameters, sent, self.layout)
            return self.model.mean_loss(logits, examples["y"][row.microbatch]) / self.schedule.microbatches

        entered = cond(row.depth == 0, lambda: enter(parameters), lambda: activation)
        sent = self.model.through(jax.tree.map(own_chunk, dict(parameters), self.model.axes), entered, self.layout)
        loss = cond(row.depth == self.schedule.depths - 1, leave, lambda: jnp.zeros_like(sent, shape=()))
        return sent, loss

    @cached_property
    def rows(self) -> np.ndarray:
        """Every stage's row of every tick (ticks, stages, columns of `Row`)."""
        rows = [[Row() for _ in range(self.schedule.stages)] for _ in range(self.schedule.ticks)]
        for slot in self.schedule.slots:
            now, work = rows[slot.tick], self.schedule.work(slot)
            inputs = {sent[0]: self.places[sent] for sent in self.schedule.inputs(slot)}
            now[slot.stage] = now[slot.stage]._replace(
                direction=DIRECTIONS.index(slot.direction),
                microbatch=slot.microbatch,
                depth=work[-1],
                activation=inputs.get("forward", NONE),
                gradient=inputs.get("backward", NONE),
            )
            receiver = self.schedule.receiver(slot)
            if receiver is not None:
                new = {"forward": "new_activation", "backward": "new_gradient"}[slot.direction]
                now[receiver] = now[receiver]._replace(**{new: self.places[work]})
        return np.array(rows, np.int32)

    @cached_property
    def places(self) -> dict[Work, int]:
        """The place in its receiver's store of everything sent: the first that is free until its last use."""
        last_use = {sent: slot.tick for slot in self.schedule.slots for sent in self.schedule.inputs(slot)}
        taken: list[dict[int, int]] = [{} for _ in range(self.schedule.stages)]
        places = {}
        for slot in self.schedule.slots:
            receiver = self.schedule.receiver(slot)
            if receiver is not None:
                work, until = self.schedule.work(slot), taken[receiver]
                places[work] = next(place for place in count() if until.get(place, NONE) <= slot.tick)
                until[places[work]] = last_use[work]
        return places

    def hops(self, ticks: range) -> list[Hop]:
        """The hops of the shortest period of these ticks in which each stage sends to one other stage at most.

        Where a stage receives two things in a tick: one hop, of two permutes.
        """
        if self.schedule.crosses(ticks):
            return [self.hop(ticks, ["forward"], ["backward"])]
        for period in range(1, len(ticks) + 1):
            hops = [self.hop(ticks[first::period], DIRECTIONS) for first in range(period)]
            ends = [set(ends) for hop in hops for pairs in hop.permutes for ends in zip(*pairs, strict=True)]
            if len(ticks) % period == 0 and sum(map(len, ends)) == 2 * sum(len(hop.permutes[0]) for hop in hops):
                break
        return hops

    def hop(self, ticks: range, *permutes: Collection[Direction]) -> Hop:
        """What any of these ticks needs; each permute sends the results of slots with these directions."""
        slots = [slot for slot in self.schedule.slots if slot.tick in ticks]
        present = {slot.direction for slot in slots}
        ends = [
            {(s.stage, to) for s in slots if s.direction in ways if (to := self.schedule.receiver(s)) is not None}
            for ways in permutes
        ]
        return Hop(tuple(way for way in DIRECTIONS if way in present), tuple(tuple(sorted(pairs)) for pairs in ends))
