"""The first batch with its rows at other places, and the losses that tell whether these draw alike."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import combinations
from typing import Any

import jax
import numpy as np

from meshproof.contract import Batch, leaves
from meshproof.observing.members import loss_of, state_and_metrics
from meshproof.observing.other_states import rekeyed, with_rows
from meshproof.observing.probes import place
from meshproof.observing.seen import NotSupported
from meshproof.observing.spread import KEYS, OTHER
from meshproof.observing.subject import Subject

MOST_SHARDS = 8
"""Of how many every pair changes places: a healthy trainer takes about a step for each of 28 pairs."""

AGREEING = 10
"""By how many keys two shards must draw alike. Masks of two rows, of which one is dropped, agree once in four times."""

SWAPPED = 1e-6
"""The share of a loss within which it stays where its sums alone are in another order."""

PARTS = 2, 3
"""Into how many parts a batch is cut, beside its microbatches: of an even number of these that are alike, so are both
halves."""

HOLDS_KEYS = NotSupported("its batches may hold the keys")


class Losses:
    """Losses of the first batch by several keys, with its rows in several orders, in the first step or a ``later`` one.

    Where a layer starts with zeros, no draw before it reaches the first loss.
    """

    def __init__(self, subject: Subject, rows: np.ndarray, later: bool = False) -> None:
        self.subject, self.usual, self.later = subject, tuple(rows.ravel()), later
        self.of = cache(self.compute)

    def compute(self, number: int, order: tuple[int, ...]) -> float:
        """By the key of this number."""
        state = self.subject.fresh()
        if self.later:
            state, _ = state_and_metrics(self.subject.strategy.train_step(state, self.subject.batches[0]))
        return loss_of_moved(self.subject, rekeyed(state, OTHER * number), np.array(order))

    def stays(self, number: int, at: np.ndarray) -> bool:
        """Whether it is the same as with the rows in their own places."""
        usual = self.of(number, self.usual)
        return abs(self.of(number, tuple(at.ravel())) - usual) <= SWAPPED * abs(usual)

    def alike(self, moved: np.ndarray, turned: np.ndarray) -> bool:
        """Whether the places that rows are ``moved`` to draw as their own ones do.

        By chance two shards may draw alike, and often do where examples are seldom dropped: only keys count by which
        the places of rows matter, as where some are ``turned``, and `AGREEING` of them must agree.
        """
        counted = 0
        for number in range(KEYS):
            if not self.stays(number, moved):
                return False
            counted += not self.stays(number, turned)
            if counted == AGREEING:
                return True
        return False


def alike_shards(subject: Subject) -> tuple[tuple[int, int], ...] | NotSupported:
    """Pairs of shards that draw alike."""
    rows = rows_by_shard(subject, 3)
    if isinstance(rows, NotSupported):
        return rows
    if len(rows) > MOST_SHARDS:
        return NotSupported(
            f"the batch has {len(rows)} shards, more than {MOST_SHARDS}: not every pair of them is tried"
        )
    losses = Losses(subject, rows)

    def are_alike(one: int, other: int) -> bool:
        swapped, turned = rows.copy(), rows.copy()
        swapped[[one, other]] = rows[[other, one]]
        turned[one] = rows[one][::-1]
        return losses.alike(swapped, turned)

    return tuple(pair for pair in combinations(range(len(rows)), 2) if are_alike(*pair))


def alike_parts(subject: Subject) -> tuple[int, ...] | NotSupported:
    """Into how many parts the batch, or each device's rows of it, can be cut, all of which draw alike."""
    rows = rows_by_shard(subject)
    if isinstance(rows, NotSupported):
        return rows
    parts = {*PARTS, subject.case.contract.microbatches} - {1}
    for losses in (Losses(subject, rows), Losses(subject, rows, later=True)):
        if not losses.stays(0, rows[:, ::-1]):
            ways = {count: cut(rows.ravel(), len(rows), count) for count in sorted(parts)}
            return tuple(count for count, orders in ways.items() if any(losses.alike(*each) for each in orders))
    return NotSupported("its losses do not depend on the places of rows")


def cut(rows: np.ndarray, shards: int, parts: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Rows with each part at the place of the next, and with the rows of each part turned round; parts are cut from the
    whole batch and from each shard, of rows that are neighbours, and of every so-manieth.

    Parts of one row are left out: what a device draws for all of its rows, as a layer that is left out, is no mask.
    """
    for pieces in dict.fromkeys((1, shards)):
        if len(rows) % (pieces * parts) or len(rows) == pieces * parts:
            continue
        blocks = np.arange(len(rows)).reshape(pieces, parts, -1)
        dealt = np.arange(len(rows)).reshape(pieces, -1, parts).swapaxes(1, 2)
        for places in (blocks, dealt):
            moved, turned = rows.copy(), rows.copy()
            moved[places] = rows[np.roll(places, 1, axis=1)]
            turned[places] = rows[places[:, :, ::-1]]
            yield moved, turned


def loss_of_batch(subject: Subject, state: Any, batch: Batch) -> float:
    """The loss that a step from this state reports."""
    return loss_of(state_and_metrics(subject.strategy.train_step(state, place(subject.strategy, batch)))[1])


def loss_of_moved(subject: Subject, state: Any, at: np.ndarray) -> float:
    """The loss of the first batch with its rows at other places, and what the state has for each of them."""
    if subject.has("auxiliary"):
        state = with_rows(state, subject.strategy.auxiliary(state), at)
    return loss_of_batch(subject, state, taken(subject, at))


def rows_by_shard(subject: Subject, least: int = 1) -> np.ndarray | NotSupported:
    """The numbers of the first batch's rows, a line for each shard, of which there must be so many."""
    batch = subject.host_batches[0]
    if may_hold_keys(batch):
        return HOLDS_KEYS
    dimension = row_dimension(subject)
    rows = np.shape(next(iter(leaves(batch)))[1])[dimension]
    held = next(iter(leaves(subject.batches[0])))[1]
    own: tuple[int, ...] = (rows,)
    if isinstance(held, jax.Array):
        own = held.sharding.shard_shape(held.shape)[dimension:]
    shards = rows // (own[0] if held.shape[dimension] == rows else own[0] * own[1])
    if shards < least or rows % shards:
        return NotSupported(f"the batch has {shards} shards of its {rows} rows")
    return np.arange(rows).reshape(shards, -1)


def row_dimension(subject: Subject) -> int:
    """The dimension of a batch's rows: 1 behind that of its microbatches, of which a device then has part of each."""
    fields = [field for _, field in leaves(subject.batches[0])]
    parts = subject.case.contract.microbatches
    stacked = parts > 1 and all(isinstance(each, jax.Array) and each.ndim > 1 and len(each) == parts for each in fields)
    own = (each.sharding.shard_shape(each.shape) for each in fields) if stacked else ()
    return int(stacked and all(of[0] == parts and of[1] < each.shape[1] for of, each in zip(own, fields, strict=True)))


def taken(subject: Subject, rows: np.ndarray) -> Batch:
    """The first batch of these of its rows."""
    dimension = row_dimension(subject)
    return jax.tree.map(lambda field: np.take(np.asarray(field), rows, dimension), dict(subject.host_batches[0]))


def may_hold_keys(batch: Batch) -> bool:
    """Whether a field is of random keys, or of 32-bit words, as keys of older code are."""
    dtypes = [getattr(field, "dtype", None) for _, field in leaves(batch)]
    return any(dtype == np.uint32 or jax.numpy.issubdtype(dtype, jax.dtypes.prng_key) for dtype in dtypes if dtype)
