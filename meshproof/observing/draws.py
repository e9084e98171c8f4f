"""Whether what a step draws differs where it must: between devices, from step to step, and between layers.

Nothing is known of a trainer but its losses. If masks belong to the rows of a shard and not to the shard, rows may
change their shards and the loss stays; if they are the same in every step, it stays in the state of the next step with
the arrays of this one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from meshproof.contract import Batch
from meshproof.measures.numerics import is_integer
from meshproof.observing.key_streams import Drawn, drawn
from meshproof.observing.members import canonical, state_and_metrics
from meshproof.observing.moved_rows import (
    HOLDS_KEYS,
    alike_parts,
    alike_shards,
    loss_of_batch,
    loss_of_moved,
    may_hold_keys,
    rows_by_shard,
    taken,
)
from meshproof.observing.other_states import advanced, rekeyed, with_arrays_of
from meshproof.observing.probes import LATER, place
from meshproof.observing.reused_keys import reused_keys
from meshproof.observing.seen import Facet, NotSupported, Seen
from meshproof.observing.spread import OTHER, Spread, over_other_keys, pieces_of
from meshproof.observing.state import host
from meshproof.observing.subject import STATE, Subject
from meshproof.observing.tensor_masks import alike_over_tensor_axes

LATE = 16
"""So many later steps: where examples are seldom dropped, a few in a row drop none."""

ALIKE = 1e-5
"""Two losses that differ by less than this share of them are of the same draws: other sums differ by a thousandth of
it, other masks by a thousand times as much."""


@dataclass(frozen=True)
class Draws(Facet):
    """Losses of the first step: as it is, with ``other`` counters and keys, with the rows of each shard ``reversed`` in
    place, with all rows moved on by one ``shard``, and with the counters and keys of the next step (``later``); with
    counters moved on by 50 and on (``late``, until one is another).

    ``pairs`` are the shards, two by two, that may change places without changing it, though their own rows may not.
    ``parts`` are the numbers of parts of the batch, or of each shard, that may.
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
    parts: Seen[tuple[int, ...]]
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
        usual=subject.attempt(lambda: loss_of_batch(subject, subject.fresh(), subject.host_batches[0])),
        other=subject.attempt(lambda: loss_of_batch(subject, rekeyed(subject.fresh(), OTHER), subject.host_batches[0])),
        reversed=subject.attempt(lambda: _rearranged(subject, lambda rows, shards: rows.reshape(shards, -1)[:, ::-1])),
        shard=subject.attempt(lambda: _rearranged(subject, lambda rows, shards: np.roll(rows, len(rows) // shards), 2)),
        later=subject.attempt(lambda: _later(subject)),
        late=late,
        pairs=subject.attempt(lambda: alike_shards(subject)),
        parts=subject.attempt(lambda: alike_parts(subject)),
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


def _rearranged(
    subject: Subject, order: Callable[[np.ndarray, int], np.ndarray], least: int = 1
) -> float | NotSupported:
    """The loss of the first batch with its rows in another order; ``least`` is the number of shards that takes."""
    rows = rows_by_shard(subject, least)
    if isinstance(rows, NotSupported):
        return rows
    return loss_of_moved(subject, subject.fresh(), order(rows.ravel(), len(rows)).ravel())


def _late(subject: Subject) -> tuple[float, ...]:
    batch, losses = subject.host_batches[0], list[float]()
    for more in range(LATE):
        losses.append(loss_of_batch(subject, advanced(subject.fresh(), LATER[0] + more), batch))
        if not alike(losses[0], losses[-1]):
            break
    return tuple(losses)


def alike(one: float, other: float) -> bool:
    """Whether two losses are of the same draws."""
    return abs(one - other) <= ALIKE * max(abs(one), abs(other))


def _late_keys(subject: Subject) -> tuple[Drawn, ...] | NotSupported:
    return drawn(subject.strategy, advanced(subject.fresh(), LATER[0]), subject.batches[:1] * 2)


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
        other = _first(subject, taken(subject, at.ravel()))
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


def _later(subject: Subject) -> float | NotSupported:
    """The loss of the first batch after a step, in the arrays from before it."""
    first = subject.host_batches[0]
    if may_hold_keys(first):
        return HOLDS_KEYS
    state, _ = subject.strategy.train_step(subject.fresh(), subject.batches[0])
    return loss_of_batch(subject, with_arrays_of(state, subject.fresh()), first)
