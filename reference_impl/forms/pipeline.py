"""The engine of every pipeline: each stage does what its row of the schedule says, then everybody hands on.

A tick is one forward, or one backward, of one microbatch through one chunk of layers, and then one collective-permute.
A stage keeps what it is handed until its last use: an activation until its backward, which computes the forward anew
from it. In ticks that go one way every stage runs that way, an idle one on whatever it has, and nobody looks at it.
Where both ways meet a branch decides; a stage that itself communicates must not depend on one, and so needs a schedule
that keeps the ways apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from itertools import count
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import axis_index, cond, dynamic_slice_in_dim, dynamic_update_index_in_dim, ppermute, scan

from meshproof.contract import Batch, Direction, Tree
from reference_impl.mapping import Axes
from reference_impl.models.layout import Whole
from reference_impl.models.stacked_mlp import StackedMLP
from reference_impl.theory.schedules import Schedule, Work

STAGE = "stage"
NONE = -1


class Row(NamedTuple):
    """What one stage does in one tick, as integers.

    ``depth`` is that of its chunk of layers, `NONE` where it is idle. ``activation`` and ``gradient`` are the places in
    its store of what it takes, ``arrival`` is that of what it is handed at the end.
    """

    is_backward: Any = 0
    microbatch: Any = 0
    depth: Any = NONE
    activation: Any = NONE
    gradient: Any = NONE
    arrival: Any = NONE


class Hop(NamedTuple):
    """What the stages have in common in a tick: which ways they go, and who hands on to whom."""

    directions: frozenset[Direction]
    pairs: tuple[tuple[int, int], ...]


class Carry(NamedTuple):
    """What a stage carries from tick to tick: its store (places, B, E), its parts of the loss and of the gradients."""

    store: jax.Array
    loss: jax.Array
    gradients: Any


@dataclass(frozen=True)
class Pipeline:
    """A model in stages along the mesh axis ``stage``, run by a schedule; each stage lays its activations out alike."""

    model: StackedMLP
    schedule: Schedule
    layout: Whole

    def run(self, parameters: Tree, batch: Batch) -> tuple[jax.Array, Tree]:
        """This stage's parts of the mean loss over this device's examples, and of its gradients: their sums are whole.

        What is not split must be this device's own (``varying``), or it is summed tick by tick behind one's back.
        """
        count_M = self.schedule.microbatches
        examples = {name: value.reshape(count_M, -1, *value.shape[1:]) for name, value in batch.items()}
        handed = jax.eval_shape(self.model.enter, parameters, examples["x"][0])
        store = jnp.zeros_like(handed, shape=(1 + max(self.places.values(), default=0), *handed.shape))
        carry = Carry(store, jnp.zeros_like(handed, shape=()), jax.tree.map(jnp.zeros_like, dict(parameters)))
        for phase in filter(len, self.schedule.phases):
            hops = self.hops(phase)
            rows = self.rows[phase.start : phase.stop].reshape(-1, len(hops), *self.rows.shape[1:])
            own = jnp.moveaxis(jnp.asarray(rows)[:, :, axis_index(STAGE)], -1, 0)
            carry, _ = scan(partial(self.period, hops, parameters, examples), carry, Row(*own))
        return carry.loss, carry.gradients

    def period(self, hops: list[Hop], parameters: Tree, examples: Batch, carry: Carry, rows: Row) -> tuple[Carry, None]:
        """Consecutive ticks."""
        for i, hop in enumerate(hops):
            carry = self.tick(hop, parameters, examples, carry, Row(*(column[i] for column in rows)))
        return carry, None

    def tick(self, hop: Hop, parameters: Tree, examples: Batch, carry: Carry, row: Row) -> Carry:
        """One slot of each stage, and the hop behind it. Forwards add to the loss, backwards to the gradients."""
        compute = partial(self.compute, examples, row)

        def forward() -> tuple[jax.Array, jax.Array, Any]:
            with jax.named_scope("forward"):
                handed, loss = compute(parameters, carry.store[row.activation])
                return handed, carry.loss + loss, carry.gradients

        def backward() -> tuple[jax.Array, jax.Array, Any]:
            (_, loss), pullback = jax.vjp(compute, parameters, carry.store[row.activation])
            gradient = jnp.where(row.gradient == NONE, 0, carry.store[row.gradient])
            own, handed = pullback((gradient, jnp.ones_like(loss)))
            return handed, carry.loss, jax.tree.map(jnp.add, carry.gradients, own)

        if len(hop.directions) > 1:
            handed, loss, gradients = cond(row.is_backward == 1, backward, forward)
        else:
            handed, loss, gradients = backward() if "backward" in hop.directions else forward()
        arrived = ppermute(handed, STAGE, hop.pairs) if hop.pairs else handed
        kept = jnp.where(row.arrival == NONE, carry.store[row.arrival], arrived)
        return Carry(dynamic_update_index_in_dim(carry.store, kept, row.arrival, 0), loss, gradients)

    def compute(
        self, examples: Batch, row: Row, parameters: Tree, activation: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """What a stage hands on (B, E), and from the last depth the microbatch's part of the loss."""

        def own_chunk(leaf: jax.Array, axes: Axes) -> jax.Array:
            if "layers" not in axes:
                return leaf
            size = len(leaf) // self.schedule.chunks
            return dynamic_slice_in_dim(leaf, row.depth // self.schedule.stages * size, size)

        @jax.checkpoint  # the examples are at hand: no copy of them is kept for the backward
        def enter(parameters: Tree) -> jax.Array:
            return self.model.enter(parameters, examples["x"][row.microbatch])

        def leave() -> jax.Array:
            logits = self.model.leave(parameters, handed)
            return self.model.mean_loss(logits, examples["y"][row.microbatch]) / self.schedule.microbatches

        entered = cond(row.depth == 0, lambda: enter(parameters), lambda: activation)
        handed = self.model.through(jax.tree.map(own_chunk, dict(parameters), self.model.axes), entered, self.layout)
        loss = cond(row.depth == self.schedule.depths - 1, leave, lambda: jnp.zeros_like(handed, shape=()))
        return handed, loss

    @cached_property
    def rows(self) -> np.ndarray:
        """Every stage's row of every tick (ticks, stages, columns of `Row`)."""
        rows = [[Row() for _ in range(self.schedule.stages)] for _ in range(self.schedule.ticks)]
        for slot in self.schedule.slots:
            now, work = rows[slot.tick], self.schedule.work(slot)
            inputs = {handed[0]: self.places[handed] for handed in self.schedule.inputs(slot)}
            now[slot.stage] = now[slot.stage]._replace(
                is_backward=int(slot.direction == "backward"),
                microbatch=slot.microbatch,
                depth=work[-1],
                activation=inputs.get("forward", NONE),
                gradient=inputs.get("backward", NONE),
            )
            receiver = self.schedule.receiver(slot)
            if receiver is not None:
                now[receiver] = now[receiver]._replace(arrival=self.places[work])
        return np.array(rows, np.int32)

    @cached_property
    def places(self) -> dict[Work, int]:
        """Where its receiver keeps all that is handed on: in the first place that is free until after its last use."""
        last_use = {handed: slot.tick for slot in self.schedule.slots for handed in self.schedule.inputs(slot)}
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
        """The hops of the shortest period of these ticks in which each stage hands on to one other at most.

        Raises ``ValueError`` where there is a tick in which two stages hand on to one.
        """
        for period in range(1, len(ticks) + 1):
            hops = [self.hop(ticks[first::period]) for first in range(period)]
            ends = [set(ends) for hop in hops for ends in zip(*hop.pairs, strict=True)]
            if len(ticks) % period == 0 and sum(map(len, ends)) == 2 * sum(len(hop.pairs) for hop in hops):
                return hops
        raise ValueError(
            f"{self.schedule.stages} stages of {self.schedule.chunks} chunks: in some tick two stages hand on to one; "
            f"interleave an even number of stages"
        )

    def hop(self, ticks: range) -> Hop:
        """What any of these ticks needs."""
        slots = [slot for slot in self.schedule.slots if slot.tick in ticks]
        ends = ((slot.stage, self.schedule.receiver(slot)) for slot in slots)
        pairs = {(sender, receiver) for sender, receiver in ends if receiver is not None}
        return Hop(frozenset(slot.direction for slot in slots), tuple(sorted(pairs)))
