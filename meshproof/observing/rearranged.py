"""Whether the mesh does what one device does with a batch or a parameter whose parts stand in another order.

Labels that are moved by a row, or a shard that is gathered into another's place, leave every example and every number
where it counts: only what stands beside it is another. So one device is given what a fault would make of the batch, or
of the parameters, and the losses of several batches are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from meshproof.contract import Leaves, nest
from meshproof.measures.numerics import norm
from meshproof.observing.members import loss_of, state_and_metrics
from meshproof.observing.probes import place

Shards = dict[str, tuple[int, ...]]
Order = Callable[[np.ndarray], np.ndarray]

EXPLAINED = 1e-2
"""How much of what the losses are off by may be left, where a rearrangement explains it."""

LEAST = 1e-4
"""What they must be off by, of the losses themselves, to be explained."""


def rearranged(
    mesh: Any, alone: Any, start: Leaves, batches: list[Leaves], fields: Shards, parameters: Shards
) -> str | None:
    """With which rearrangement one device has the losses of the mesh; ``None``: with none that is tried.

    ``fields`` and ``parameters`` say into how many shards each dimension of what may be rearranged is split.
    """
    saw, usual = (losses(trainer, start, batches) for trainer in (mesh, alone))
    off = norm(saw - usual)
    if off <= LEAST * norm(usual):
        return None
    for field, shards in fields.items():
        for told, order in orders(np.shape(batches[0][field]), shards):
            moved = [batch | {field: order(batch[field])} for batch in batches]
            if norm(saw - losses(alone, start, moved)) <= EXPLAINED * off:
                return f"{told.format(field)}, against the rest of the batch"
    in_order: dict[str, dict[str, Order]] = {}
    for path, shards in parameters.items():
        for told, order in orders_of_shards(np.shape(start[path]), shards):
            in_order.setdefault(told, {})[path] = order
    for told, by_path in in_order.items():
        for paths in dict.fromkeys([tuple(by_path), *((path,) for path in by_path)]):
            parameters_moved = {path: by_path[path](start[path]) for path in paths}
            if norm(saw - losses(alone, start | parameters_moved, batches)) <= EXPLAINED * off:
                return told.format(" and ".join(paths))
    return None


def losses(trainer: Any, start: Leaves, batches: list[Leaves]) -> np.ndarray:
    """Of a first step on each batch."""
    states = (trainer.load(nest(start)) for _ in batches)
    steps = (
        trainer.train_step(state, place(trainer, nest(batch))) for state, batch in zip(states, batches, strict=True)
    )
    return np.array([loss_of(state_and_metrics(step)[1]) for step in steps])


def orders(shape: tuple[int, ...], shards: tuple[int, ...]) -> Iterator[tuple[str, Order]]:
    """What of a field may stand beside others than before, in words with a place for its name; and what moves it."""
    for dimension, (size, count) in enumerate(zip(shape, shards, strict=True)):
        if count == 1:
            continue
        index, own = np.arange(size), size // count
        for by in (1, -1):
            yield f"{{}} moved by {by} in dimension {dimension}", taken(np.roll(index, by), dimension)
            if own > 1:
                within = np.roll(index.reshape(count, own), by, 1).ravel()
                yield f"{{}} moved by {by} within each shard of dimension {dimension}", taken(within, dimension)
    yield from orders_of_shards(shape, shards)


def orders_of_shards(shape: tuple[int, ...], shards: tuple[int, ...]) -> Iterator[tuple[str, Order]]:
    """In which other order its shards may stand."""
    for dimension, (size, count) in enumerate(zip(shape, shards, strict=True)):
        if count == 1:
            continue
        by_shard = np.arange(size).reshape(count, -1)
        yield f"the shards of {{}} in reverse order in dimension {dimension}", taken(by_shard[::-1].ravel(), dimension)
        for by in (1, -1) if count > 2 else ():
            rolled = np.roll(by_shard, by, 0).ravel()
            yield f"the shards of {{}} moved by {by} in dimension {dimension}", taken(rolled, dimension)


def taken(index: np.ndarray, dimension: int) -> Order:
    """What takes these along a dimension."""
    return lambda value: np.take(value, index, dimension)
