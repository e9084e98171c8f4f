"""Gathers and scatters, with indices inside an array, counted from its end, and outside."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from meshproof.operations import Operand, Operation

X = Operand((8, 16))


def inside(draws: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Indices of rows, some of them several times."""
    return draws.integers(0, 8, size=shape)


def negative(draws: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Indices that are counted from the end."""
    return draws.integers(-8, 0, size=shape)


def outside(draws: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Indices of which every second is far beyond either end."""
    found = draws.integers(0, 8, size=shape)
    found.flat[::4], found.flat[2::4] = 100, -100
    return found


ROWS = Operand((8,), "int32", (inside, negative, outside))
ELEMENTS = Operand((8, 4), "int32", (inside, negative))


def counted(rows: np.ndarray) -> np.ndarray:
    """Indices from the start."""
    return np.where(rows < 0, rows + 8, rows)


def clipped(x: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Rows of which those outside are the nearest one."""
    return x[np.clip(counted(rows), 0, 7)]


def filled(x: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Rows of which those outside are 0."""
    own = counted(rows)
    return np.where(((own >= 0) & (own < 8))[:, None], x[np.clip(own, 0, 7)], 0)


def scattered(x: np.ndarray, rows: np.ndarray, new: np.ndarray, add: bool = True) -> np.ndarray:
    """Rows that are added, or set, one after the other; those outside are dropped."""
    result = x.copy()
    for row, values in zip(counted(rows), new, strict=True):
        if 0 <= row < 8:
            result[row] = result[row] + values if add else values
    return result


def one_hot(rows: np.ndarray) -> np.ndarray:
    """Of eight classes; a negative class, or one outside, is none."""
    return (rows[:, None] == np.arange(8)).astype(np.float32)


def distinct_rows(draws: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Indices of which no two are the same: whatever is set, the order does not matter."""
    return draws.permutation(8)


def distinct_outside(draws: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Such indices, of which every second is beyond the end."""
    return draws.permutation(8) * np.array([1, 9] * 4) + np.array([0, 9] * 4)


INDEXING = (
    Operation("gather_clip", lambda x, i: x.at[i].get(mode="clip"), (X, ROWS), clipped),
    Operation("gather_fill", lambda x, i: x.at[i].get(mode="fill", fill_value=0), (X, ROWS), filled),
    Operation("gather_rows", lambda x, i: x[i], (X, Operand((8,), "int32", (inside, negative))), lambda x, i: x[i]),
    Operation(
        "gather_columns", lambda x, i: x[:, i], (X, Operand((4,), "int32", (inside, negative))), lambda x, i: x[:, i]
    ),
    Operation(
        "gather_tiny", lambda x, i: x[i], (Operand((8,)), Operand((8,), "int32", (inside, negative))), lambda x, i: x[i]
    ),
    Operation(
        "take_along_axis",
        lambda x, i: jnp.take_along_axis(x, i, 1),
        (X, ELEMENTS),
        lambda x, i: np.take_along_axis(x, i, 1),
    ),
    Operation(
        "embedding",
        lambda table, tokens: jnp.take(table, tokens, axis=0, mode="clip"),
        (Operand((8, 8)), ELEMENTS),
        lambda table, tokens: table[np.clip(tokens, 0, 7)],
    ),
    Operation("scatter_add", lambda x, i, new: x.at[i].add(new), (X, ROWS, X), scattered),
    Operation(
        "scatter_set",
        lambda x, i, new: x.at[i].set(new),
        (X, Operand((8,), "int32", (distinct_rows, distinct_outside)), X),
        lambda x, i, new: scattered(x, i, new, add=False),
    ),
    Operation(
        "scatter_int",
        lambda x, i, new: x.at[i].add(new),
        (Operand((8, 8), "int32"), ROWS, Operand((8, 8), "int32")),
        scattered,
    ),
    Operation(
        "segment_sum",
        lambda x, i: jax.ops.segment_sum(x, i, num_segments=8),
        (X, ROWS),
        lambda x, i: scattered(np.zeros_like(x), np.where(i < 0, 100, i), x),
    ),
    Operation("one_hot", lambda i: jax.nn.one_hot(i, 8), (ROWS,), one_hot),
)
