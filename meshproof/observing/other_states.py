"""States that training would reach later, or that draw other numbers: made from a state, for every trainer alike.

Nothing is known of a trainer's state but its leaves. A counter is a whole number, or one for each device; a random key
is a typed one, or 32-bit words in pairs or fours, as older code has them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from meshproof.contract import Leaves, Tree, leaves

SHOWN_RATES = re.compile("hyperparams.*(learning_rate|weight_decay)")
"""Where ``optax.inject_hyperparams`` keeps what may be larger, among what it shows in its state."""


GENERATORS = {2: "threefry2x32", 4: "rbg"}
"""By how many words a key of theirs has."""


class NotHeldError(Exception):
    """A part of a state that cannot have other values, as it is made of arrays that the state holds."""


def advanced(state: Any, by: int) -> Any:
    """Every counter that much later."""
    return _change(state, lambda path, leaf: np.asarray(leaf) + leaf.dtype.type(by) if is_counter(leaf) else None)


def with_rates_times(state: Any, factor: float) -> Any:
    """Every rate that the state shows, times a factor."""

    def change(path: str, leaf: jax.Array) -> Any:
        shown = bool(SHOWN_RATES.search(path)) and jax.numpy.issubdtype(leaf.dtype, jax.numpy.floating)
        return (np.asarray(leaf) * factor).astype(leaf.dtype) if shown else None

    return _change(state, change)


def shows_rates(state: Any) -> bool:
    """Whether it shows any."""
    flat, _ = jax.tree_util.tree_flatten_with_path(state)
    return any(SHOWN_RATES.search(jax.tree_util.keystr(path)) for path, _ in flat)


def rekeyed(state: Any, number: int, counters: bool = True) -> Any:
    """Other random numbers: every key another one, and every counter, for a key may be folded with it."""

    def change(path: str, leaf: jax.Array) -> Any:
        if jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            generator: Any = jax.random.key_impl(leaf)
            return jax.random.wrap_key_data(jax.random.key_data(leaf) ^ np.uint32(number), impl=generator)
        if is_raw_key(leaf):
            return np.asarray(leaf) ^ np.uint32(number)
        return np.asarray(leaf) + leaf.dtype.type(number) if counters and is_counter(leaf) else None

    return _change(state, change)


def with_typed_keys(state: Any) -> Any:
    """Every key with its type, so that JAX can follow it."""

    def typed(leaf: Any) -> Any:
        return jax.random.wrap_key_data(leaf, impl=GENERATORS[leaf.shape[-1]]) if is_raw_key(leaf) else leaf

    return jax.tree.map(lambda leaf: typed(leaf) if isinstance(leaf, jax.Array) else leaf, state)


def with_arrays_of(state: Any, earlier: Any) -> Any:
    """The arrays of numbers as they were earlier; counters, keys and single numbers stay."""
    were = {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_flatten_with_path(earlier)[0]}

    def change(path: str, leaf: jax.Array) -> Any:
        return were[path] if leaf.ndim and jax.numpy.issubdtype(leaf.dtype, jax.numpy.inexact) else None

    return _change(state, change)


def with_values_of(state: Any, part: Tree, values: Leaves) -> Any:
    """Other values at the leaves of a part of the state: those of the same path and shape.

    Raises `NotHeldError` where the part has a leaf that the state does not hold itself, such as a transposed one.
    """
    given = {path: leaf for path, leaf in leaves(part) if path in values and leaf.shape == values[path].shape}
    wanted = {id(leaf): (path, values[path]) for path, leaf in given.items()}
    held = {id(leaf) for leaf in jax.tree.leaves(state)}
    if lacking := [path for place, (path, _) in wanted.items() if place not in held]:
        raise NotHeldError(f"auxiliary returned {lacking[0]!r}, which is no array of the state itself: return that one")
    return jax.tree.map(
        lambda leaf: jax.device_put(wanted[id(leaf)][1], leaf.sharding) if id(leaf) in wanted else leaf, state
    )


def with_rows(state: Any, part: Tree, at: np.ndarray) -> Any:
    """What a part of the state has for each example of a batch, on the device of that example: its rows ``at`` these
    places. A part that the state does not hold itself stays."""

    def has_rows(leaf: jax.Array) -> bool:
        split = leaf.shape[:1] == at.shape and leaf.sharding.shard_shape(leaf.shape)[0] < len(at)
        return split and not (is_raw_key(leaf) or jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key))

    rows = {id(leaf) for _, leaf in leaves(part) if isinstance(leaf, jax.Array) and has_rows(leaf)}
    return jax.tree.map(
        lambda leaf: jax.device_put(np.asarray(leaf)[at], leaf.sharding) if id(leaf) in rows else leaf, state
    )


def is_counter(leaf: jax.Array) -> bool:
    """A whole number, or one for each device."""
    whole = jax.numpy.issubdtype(leaf.dtype, jax.numpy.integer)
    return whole and leaf.size <= jax.device_count() and not is_raw_key(leaf)


def is_raw_key(leaf: jax.Array) -> bool:
    """Words of a key that has no type: two, or four of another generator."""
    return leaf.dtype == np.uint32 and leaf.ndim > 0 and leaf.shape[-1] in GENERATORS


def _change(state: Any, change: Callable[[str, jax.Array], Any]) -> Any:
    """The state with other values at the leaves for which there is one, placed as they were."""

    def of(path: Any, leaf: Any) -> Any:
        other = change(jax.tree_util.keystr(path), leaf) if isinstance(leaf, jax.Array) else None
        return leaf if other is None else jax.device_put(other, leaf.sharding)

    return jax.tree_util.tree_map_with_path(of, state)
