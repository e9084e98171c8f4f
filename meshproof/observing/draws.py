"""Whether what a step draws differs where it must: between devices, from step to step, and between layers.

Nothing is known of a trainer but its losses. If masks belong to the rows of a shard and not to the shard, rows may
change their shards and the loss stays; if they are the same in every step, it stays in the state of the next step with
the arrays of this one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from typing import Any

import jax
import numpy as np

from meshproof.contract import Batch, leaves
from meshproof.measures.numerics import is_integer
from meshproof.observing.key_streams import Drawn, drawn
from meshproof.observing.members import canonical, loss_of, state_and_metrics
from meshproof.observing.other_states import advanced, rekeyed, with_arrays_of, with_rows
from meshproof.observing.probes import LATER, place
from meshproof.observing.reused_keys import reused_keys
from meshproof.observing.seen import Facet, NotSupported, Seen
from meshproof.observing.spread import KEYS, OTHER, Spread, over_other_keys, pieces_of
from meshproof.observing.state import host
from meshproof.observing.subject import STATE, Subject
from meshproof.observing.tensor_masks import alike_over_tensor_axes

LATE = 16
"""So many later steps: where examples are seldom dropped, a few in a row drop none."""

MOST_SHARDS = 8
"""Of how many every pair changes places: a healthy trainer takes about a step for each of 28 pairs."""

AGREEING = 10
"""By how many keys two shards must draw alike. Masks of two rows, of which one is dropped, agree once in four times."""

ALIKE = 1e-5
"""Two losses that differ by less than this share of them are of the same draws: other sums differ by a thousandth of
it, other masks by a thousand times as much."""

SWAPPED = 1e-6
"""The share of a loss within which it stays where its sums alone are in another order."""

HOLDS_KEYS = NotSupported("its batches may hold the keys")


@dataclass(frozen=True)
class Draws(Facet):
    """Losses of the first step: as it is, with ``other`` counters and keys, with the rows of each shard ``reversed`` in
    place, with all rows moved on by one ``shard``, and with the counters and keys of the next step (``later``); with
    counters moved on by 50 and on (``late``, until one is another).

    ``pairs`` are the shards, two by two, that may change places without changing it, though their own rows may not.
    ``ignored`` are those whose rows change no bit of the first gradients (of the first update, if it shows none).
    ``reused`` is what JAX says of a key that is used twice in a step. ``keys`` are those by which the first steps draw,
    and ``late_keys``, where none of the ``late`` losses is another, those of two steps with counters moved on by 50.
    ``tensor`` are the axes over which the shards of activations are masked alike, with their parameters. ``spread`` is
    what `over_other_keys` sees, where a single device is there to compare it with."""

    usual: Seen[float]
    other: Seen[float]
    reversed: Seen[float]
    shard: Seen[float]
    later: Seen[float]
    late: Seen[tuple[float, ...]]
    pairs: Seen[tuple[tuple[int, int], ...]]
    ignored: Seen[tuple[int, ...]]
    reused: Seen[tuple[str, ...]]
    keys: Seen[tuple[Drawn, ...]]
    late_keys: Seen[tuple[Drawn, ...]]
    tensor: Seen[tuple[tuple[str, tuple[str, ...]], ...]]
    spread: Seen[Spread]


def observe_draws(subject: Subject) -> Draws:
    """The facet, where the strategy says that it draws."""
    if not getattr(subject.strategy, "draws", False):
        return Draws.unseen(NotSupported("the strategy does not say that it draws"))
    late = subject.attempt(lambda: _late(subject))
    return Draws(
        usual=subject.attempt(lambda: _loss(subject, subject.fresh(), subject.host_batches[0])),
        other=subject.attempt(lambda: _loss(subject, rekeyed(subject.fresh(), OTHER), subject.host_batches[0])),
        reversed=subject.attempt(lambda: _rearranged(subject, lambda rows, shards: rows.reshape(shards, -1)[:, ::-1])),
        shard=subject.attempt(lambda: _rearranged(subject, lambda rows, shards: np.roll(rows, len(rows) // shards), 2)),
        later=subject.attempt(lambda: _later(subject)),
        late=late,
        pairs=subject.attempt(lambda: _pairs(subject)),
        ignored=subject.attempt(lambda: ignored_shards(subject)),
        reused=subject.attempt(lambda: reused_keys(subject)),
        keys=subject.attempt(lambda: drawn(subject.strategy, subject.fresh(), subject.batches)),
        late_keys=subject.attempt(lambda: _late_keys(subject))
        if isinstance(late, tuple) and alike(late[0], late[-1])
        else NotSupported("the losses of these steps differ"),
        tensor=subject.attempt(lambda: alike_over_tensor_axes(subject)),
        spread=_spread(subject),
    )


def _spread(subject: Subject) -> Seen[Spread]:
    if not subject.case.is_own_judge:
        return NotSupported("its run on one device is not its truth")
    batch, gradients = subject.batches[0], subject.has("gradients")
    return subject.attempt(
        lambda: over_other_keys(subject.strategy, subject.fresh, batch, gradients, pieces_of(subject))
    )


def _loss(subject: Subject, state: Any, batch: Batch) -> float:
    return loss_of(state_and_metrics(subject.strategy.train_step(state, place(subject.strategy, batch)))[1])


def _rearranged(
    subject: Subject, order: Callable[[np.ndarray, int], np.ndarray], least: int = 1
) -> float | NotSupported:
    """The loss of the first batch with its rows in another order; ``least`` is the number of shards that takes."""
    rows = rows_by_shard(subject, least)
    if isinstance(rows, NotSupported):
        return rows
    return _moved(subject, subject.fresh(), order(rows.ravel(), len(rows)).ravel())


def _moved(subject: Subject, state: Any, at: np.ndarray) -> float:
    """The loss of the first batch with its rows at other places, and what the state has for each of them."""
    if subject.has("auxiliary"):
        state = with_rows(state, subject.strategy.auxiliary(state), at)
    return _loss(subject, state, _taken(subject, at))


def _late(subject: Subject) -> tuple[float, ...]:
    batch, losses = subject.host_batches[0], list[float]()
    for more in range(LATE):
        losses.append(_loss(subject, advanced(subject.fresh(), LATER[0] + more), batch))
        if not alike(losses[0], losses[-1]):
            break
    return tuple(losses)


def alike(one: float, other: float) -> bool:
    """Whether two losses are of the same draws."""
    return abs(one - other) <= ALIKE * max(abs(one), abs(other))


def _late_keys(subject: Subject) -> tuple[Drawn, ...] | NotSupported:
    return drawn(subject.strategy, advanced(subject.fresh(), LATER[0]), subject.batches[:1] * 2)


def _pairs(subject: Subject) -> tuple[tuple[int, int], ...] | NotSupported:
    """By chance two shards may draw alike, and often do where examples are seldom dropped: only keys count by which the
    places of a shard's own rows matter, and `AGREEING` of them must agree."""
    rows = rows_by_shard(subject, 3)
    if isinstance(rows, NotSupported):
        return rows
    if len(rows) > MOST_SHARDS:
        return NotSupported(
            f"the batch has {len(rows)} shards, more than {MOST_SHARDS}: not every pair of them is tried"
        )

    @cache
    def loss(number: int, order: tuple[int, ...]) -> float:
        return _moved(subject, rekeyed(subject.fresh(), OTHER * number), np.array(order))

    def stays(number: int, at: np.ndarray) -> bool:
        usual = loss(number, tuple(rows.ravel()))
        return abs(loss(number, tuple(at.ravel())) - usual) <= SWAPPED * abs(usual)

    def are_alike(one: int, other: int) -> bool:
        swapped, turned, counted = rows.copy(), rows.copy(), 0
        swapped[[one, other]] = rows[[other, one]]
        turned[one] = rows[one][::-1]
        for number in range(KEYS):
            if not stays(number, swapped):
                return False
            counted += not stays(number, turned)
            if counted == AGREEING:
                return True
        return False

    return tuple(pair for pair in combinations(range(len(rows)), 2) if are_alike(*pair))


def ignored_shards(subject: Subject) -> tuple[int, ...] | NotSupported:
    """The shards whose rows change nothing where those of the next shard stand in their place."""
    batch, rows = subject.host_batches[0], rows_by_shard(subject, 2)
    if isinstance(rows, NotSupported):
        return rows
    if not np.all(batch.get(str(subject.case.contract.mask), True)):
        return NotSupported("its mask leaves out rows of the first batch: let the first of `batches` be whole")
    usual = _first(subject, batch)
    if not subject.has("gradients") and same(usual, _held(subject, subject.fresh())):
        return NotSupported("the first step changes no number: show its gradients, or let the first rate be none of 0")
    found = []
    for shard in range(len(rows)):
        at = rows.copy()
        at[shard] = rows[(shard + 1) % len(rows)]
        other = _first(subject, _taken(subject, at.ravel()))
        if same(usual, other):
            found.append(shard)
    return tuple(found)


def _first(subject: Subject, batch: Batch) -> Mapping[str, np.ndarray]:
    """The first gradients, or, where it shows none, moments and parameters after the first step."""
    state, given = subject.fresh(), place(subject.strategy, batch)
    if subject.has("gradients"):
        return host(canonical(subject.strategy.gradients(state, given), "gradients"))
    return _held(subject, state_and_metrics(subject.strategy.train_step(state, given))[0])


def _held(subject: Subject, state: Any) -> Mapping[str, np.ndarray]:
    """Parameters and optimizer state, but for counters."""
    shown = {part: subject.host(subject.tree(part, state)) for part in STATE if subject.has(part)}
    every = {f"{part}/{path}": value for part, tree in shown.items() for path, value in tree.items()}
    return {path: value for path, value in every.items() if not is_integer(value)}


def same(one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> bool:
    """Whether two trees have the same bits, or NaN in the same places."""
    return all(np.array_equal(value, other[path], equal_nan=True) for path, value in one.items())


def rows_by_shard(subject: Subject, least: int = 1) -> np.ndarray | NotSupported:
    """The numbers of the first batch's rows, a line for each shard, of which there must be so many."""
    batch = subject.host_batches[0]
    if _may_hold_keys(batch):
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


def _taken(subject: Subject, rows: np.ndarray) -> Batch:
    """The first batch of these of its rows."""
    dimension = row_dimension(subject)
    return jax.tree.map(lambda field: np.take(np.asarray(field), rows, dimension), dict(subject.host_batches[0]))


def _later(subject: Subject) -> float | NotSupported:
    """The loss of the first batch after a step, in the arrays from before it."""
    first = subject.host_batches[0]
    if _may_hold_keys(first):
        return HOLDS_KEYS
    state, _ = subject.strategy.train_step(subject.fresh(), subject.batches[0])
    return _loss(subject, with_arrays_of(state, subject.fresh()), first)


def _may_hold_keys(batch: Batch) -> bool:
    """Whether a field is of random keys, or of 32-bit words, as keys of older code are."""
    dtypes = [getattr(field, "dtype", None) for _, field in leaves(batch)]
    return any(dtype == np.uint32 or jax.numpy.issubdtype(dtype, jax.dtypes.prng_key) for dtype in dtypes if dtype)
