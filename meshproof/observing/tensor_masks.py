"""Whether the shards of a tensor that is split over a tensor-parallel axis are masked alike.

Each shard is a part of the whole array, and so is its mask. Nothing is known of a trainer but its losses: hidden units
may change their shards, with the weights that make and read them, and the loss stays where all shards have one mask. It
does not where units change places within their shard. That they may do so but for the mask is seen with masks that drop
or keep a whole array. A mask of activations that no axis splits is the same for all units, and no matter here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from meshproof.contract import leaves, nest, spec_axes
from meshproof.observing.key_streams import SHARED, WRAPPED, DrawBits, drawing_by
from meshproof.observing.members import loss_of, state_and_metrics
from meshproof.observing.other_states import rekeyed
from meshproof.observing.seen import NotSupported
from meshproof.observing.subject import Subject

OTHER = 7919
"""By which keys and counters are other ones."""

KEYS, AGREEING = 32, 10
"""Of so many keys so many must tell masks of units, and all must be alike over the shards."""

ALIKE, APART = 1e-6, 1e-4
"""Shares of a loss: within the first it stays, but for sums in another order; beyond the second it does not."""

Units = dict[str, int]
"""Parameters whose units are split in the same way, with the dimension that has them."""


def alike_over_tensor_axes(subject: Subject) -> tuple[tuple[str, tuple[str, ...]], ...] | NotSupported:
    """The axes over which units are masked alike, each with the parameters of these units."""
    strategy, contract = subject.strategy, subject.case.contract
    if None in (contract.parameters, contract.batch) or not (subject.has("load") and subject.has("parameters")):
        return NotSupported("it has no load, or its contract promises no layout of parameters and batch")
    start = subject.host(subject.tree("parameters", subject.fresh()))
    groups = list(_groups(subject, start))
    if not groups:
        return NotSupported("no axis beside those of the batch splits its parameters")

    def state(values: Mapping[str, np.ndarray], number: int) -> Any:
        return rekeyed(strategy.load(nest(dict(values))), OTHER * number)

    def loss(state: Any) -> float:
        return loss_of(state_and_metrics(strategy.train_step(state, subject.batches[0]))[1])

    usual = cache(lambda number: loss(state(start, number)))
    found = []
    for axis, units in groups:
        exchanged, turned = (_moved(start, units, subject.case.mesh[axis], how) for how in (_next, _reversed))
        if not _alike(lambda values, number: loss(state(values, number)), usual, exchanged, turned):
            continue
        with drawing_by(_one_for_all, SHARED) as retyped:
            losses = [[loss(retyped(state(values, n))) for values in (turned, start)] for n in range(AGREEING)]
        if all(_near(one, other, ALIKE) for one, other in losses):
            found.append((axis, tuple(units)))
    return tuple(found)


def _alike(
    loss: Callable[[Mapping[str, np.ndarray], int], float],
    usual: Callable[[int], float],
    exchanged: Mapping[str, np.ndarray],
    turned: Mapping[str, np.ndarray],
) -> bool:
    """Whether shards may change places by keys enough by which the places of their own units matter."""
    counted = 0
    for number in range(KEYS):
        if not _near(loss(turned, number), usual(number), APART):
            if not _near(loss(exchanged, number), usual(number), ALIKE):
                return False
            counted += 1
        if counted == AGREEING or (number >= AGREEING and not counted):
            break
    return counted == AGREEING


def _groups(subject: Subject, start: Mapping[str, np.ndarray]) -> Iterator[tuple[str, Units]]:
    """By axis and by the size of a shard: parameters that are split over an axis beside those of the batch."""
    contract, mesh = subject.case.contract, subject.case.mesh
    batch = {axis for spec in (contract.batch or {}).values() for axis in spec_axes(spec)}
    found: dict[tuple[str, int], Units] = {}
    for path, value in leaves(start):
        for dimension, entry in enumerate(contract.spec("parameters", path)):
            axes = spec_axes((entry,))
            if len(axes) == 1 and axes[0] not in batch and (size := mesh[axes[0]]) > 1:
                found.setdefault((axes[0], value.shape[dimension] // size), {})[path] = dimension
    yield from ((axis, units) for (axis, size), units in found.items() if size > 1 and len(units) > 1)


def _moved(
    start: Mapping[str, np.ndarray], units: Units, shards: int, how: Callable[[np.ndarray], np.ndarray]
) -> dict[str, np.ndarray]:
    """The parameters with their units in other places."""

    def order(path: str) -> np.ndarray:
        return how(np.arange(start[path].shape[units[path]]).reshape(shards, -1)).ravel()

    return dict(start) | {path: np.take(start[path], order(path), axis=at) for path, at in units.items()}


def _next(units: np.ndarray) -> np.ndarray:
    return np.roll(units, 1, axis=0)


def _reversed(units: np.ndarray) -> np.ndarray:
    return units[:, ::-1]


def _near(one: float, other: float, share: float) -> bool:
    return abs(one - other) <= share * abs(other)


def _one_for_all(generator: str) -> DrawBits:
    """Bits that are the same for each element of an array: a loop that draws until it accepts still ends."""

    def draw(words: jax.Array, width: int, shape: tuple[int, ...]) -> jax.Array:
        return jnp.broadcast_to(jax.random.bits(WRAPPED(words, impl=generator), (), f"uint{width}"), shape)

    return draw
