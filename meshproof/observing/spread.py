"""How a step spreads what it draws, over many keys: its loss, its gradients and what it adds to the parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import jax
import numpy as np

from meshproof.contract import Leaves, leaves
from meshproof.measures.numerics import norm, real
from meshproof.observing.members import canonical, loss_of, state_and_metrics
from meshproof.observing.other_states import rekeyed
from meshproof.observing.seen import NotSupported
from meshproof.observing.state import host
from meshproof.observing.subject import Subject

OTHER = 7919
"""By which counters and keys are other ones."""

KEYS = 32
"""Over how many keys the mean of what a step draws is taken. Of a scalar the difference of two such means exceeds six
of its deviations once in a million runs (Student's t with 31 degrees of freedom: one device's deviation is taken)."""

TRIED = 8
"""By so many keys it is seen whether they change anything: where few examples are dropped, one key often drops none."""

LENGTH = ", its length"
"""What a gradient has more of, if noise adds up in it."""

CHANGE = "change of "
"""What the first step adds to a parameter."""

TOGETHER = "its shards added up"
"""What shards that draw alike have more of."""

Pieces = Mapping[str, tuple[tuple[slice, ...], ...]]


@dataclass(frozen=True)
class Spread:
    """Mean, median and deviation, over many keys, of the first loss and of the first gradients; where these do not
    depend on the draws, of what the first step adds to the parameters.

    Of this the mean and the median are lengths: of a gradient that is 0 but for rounding, Adam adds its rate with
    either sign. ``variance`` is that of all elements of each together, with its own standard error, as its runs show
    it."""

    mean: Leaves
    median: Leaves
    deviation: Leaves
    variance: Mapping[str, tuple[float, float]]


def pieces_of(subject: Subject) -> Pieces:
    """The shards of each parameter that the mesh splits."""
    held = leaves(canonical(subject.strategy.parameters(subject.fresh()), "parameters"))
    every = {
        path: tuple({repr(index): index for index in array.sharding.devices_indices_map(array.shape).values()}.values())
        for path, array in held
        if isinstance(array, jax.Array)
    }
    return {path: shards for path, shards in every.items() if len(shards) > 1}


def over_other_keys(
    trainer: Any, fresh: Callable[[], Any], batch: Any, gradients: bool, pieces: Pieces
) -> Spread | NotSupported:
    """Over `KEYS` other keys, of the loss of a step and, if asked for, the gradients and the length of each: of many
    elements the noise adds up, and a length has little.

    What changes none of them, as noise that is added to updates, is seen in these, and in their ``pieces``. Where no
    keys of the state change anything, counters may: a key is folded with them. They are moved on far, by numbers that
    are near each other, for rates and noise may follow a schedule. ``fresh`` makes the state that each starts from.
    """

    def run(state: Any, updates: bool) -> Leaves:
        seen: dict[str, Any] = {}
        if gradients:
            own = host(canonical(trainer.gradients(state, batch), "gradients"))
            seen = {f"gradient of {path}": leaf for path, leaf in own.items()}
            seen |= {f"gradient of {path}{LENGTH}": np.asarray(norm(real(leaf))) for path, leaf in own.items()}
        before = host(canonical(trainer.parameters(state), "parameters")) if updates else {}
        state, metrics = state_and_metrics(trainer.train_step(state, batch))
        if updates:
            after = host(canonical(trainer.parameters(state), "parameters"))
            seen |= in_pieces({path: after[path] - leaf for path, leaf in before.items()}, pieces)
        return {"loss": np.asarray(loss_of(metrics))} | seen

    for counters in (False, True):
        for updates in (False, True):
            states = (rekeyed(fresh(), OTHER + number, counters) for number in range(KEYS))
            tried = [run(state, updates) for state in islice(states, TRIED)]
            if not are_alike(tried):
                return spread([*tried, *(run(state, updates) for state in states)])
    return NotSupported("other keys and counters in its state change nothing that its step draws")


def are_alike(runs: Sequence[Leaves]) -> bool:
    """Whether all have the same numbers."""
    return all(np.array_equal(run[what], runs[0][what]) for run in runs[1:] for what in run)


def in_pieces(changes: Leaves, pieces: Pieces) -> Leaves:
    """What is added to each parameter, to each of its shards, and to all these together: shards that add the same noise
    add up to more than those of which each has its own."""
    seen: dict[str, np.ndarray] = {}
    for path, change in changes.items():
        shards = [change[index] for index in pieces.get(path, ())]
        seen |= {f"{CHANGE}{path}": change}
        seen |= {f"{CHANGE}{path}, shard {number}": shard for number, shard in enumerate(shards)}
        if len({shard.shape for shard in shards}) == 1:
            seen |= {f"{CHANGE}{path}, {TOGETHER}": np.sum(shards, axis=0, dtype=np.float64)}
    return seen


def spread(runs: Sequence[Leaves]) -> Spread:
    """Of what all of these runs have."""

    def of_each(how: Callable[..., Any]) -> dict[str, Any]:
        return {what: how(np.stack([real(run[what]) for run in runs]), axis=0) for what in runs[0]}

    def with_lengths(middle: Leaves) -> Leaves:
        return {what: np.asarray(norm(of)) if what.startswith(CHANGE) else of for what, of in middle.items()}

    mean, median = with_lengths(of_each(np.mean)), with_lengths(of_each(np.median))
    return Spread(mean, median, of_each(np.std), of_each(variance))


def variance(runs: np.ndarray, axis: int) -> tuple[float, float]:
    """Of the runs along an axis, summed over the elements; and the standard error of it."""
    squares = (runs - runs.mean(axis, keepdims=True)) ** 2
    of_each = squares.reshape(KEYS, -1).sum(axis=1)
    return float(of_each.sum() / (KEYS - 1)), float(of_each.std(ddof=1) / np.sqrt(KEYS))
