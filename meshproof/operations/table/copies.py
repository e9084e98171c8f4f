"""Operations that move elements and compute nothing: results are copies, bit for bit."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec

from meshproof.operations import Operand, Operation

X = Operand((8, 16))
TINY = Operand((8,))
"""One element on each of eight devices."""

CORNERS = (
    lambda draws, shape: np.array([2, 5]),
    lambda draws, shape: np.array([-3, -1]),
    lambda draws, shape: np.array([7, 15]),
    lambda draws, shape: np.array([100, -100]),
)
"""Starts of a slice: inside, counted from the end, so near the end that it does not fit, and outside."""

START = Operand((2,), "int32", CORNERS)


def corner(start: np.ndarray, shape: tuple[int, ...], size: tuple[int, ...]) -> tuple[slice, ...]:
    """The slice of that size that XLA takes: negative starts count from the end, and it is moved until it fits."""
    counted = [int(s) + n if s < 0 else int(s) for s, n in zip(start, shape, strict=True)]
    begins = [min(max(s, 0), n - k) for s, n, k in zip(counted, shape, size, strict=True)]
    return tuple(slice(s, s + k) for s, k in zip(begins, size, strict=True))


def updated(x: np.ndarray, new: np.ndarray, start: np.ndarray) -> np.ndarray:
    """``lax.dynamic_update_slice`` in NumPy."""
    result = x.copy()
    result[corner(start, x.shape, new.shape)] = new
    return result


def padded(x: np.ndarray) -> np.ndarray:
    """``lax.pad`` of these widths in NumPy: one row before, a column after each, and a column less at the end."""
    wide = np.zeros((10, 31))
    wide[1:9, ::2] = x
    return wide[:, :-1]


COPIES = (
    Operation("concatenate", lambda x, y: jnp.concatenate([x, y], 0), (X, X), lambda x, y: np.concatenate([x, y], 0)),
    Operation(
        "concatenate_uneven",
        lambda x, y: jnp.concatenate([x, y], 1),
        (Operand((8, 3)), Operand((8, 8))),
        lambda x, y: np.concatenate([x, y], 1),
    ),
    Operation(
        "concatenate_elements",
        lambda x, y: jnp.concatenate([x, y, x]),
        (TINY, TINY),
        lambda x, y: np.concatenate([x, y, x]),
    ),
    Operation("stack", lambda x, y: jnp.stack([x, y], 1), (X, X), lambda x, y: np.stack([x, y], 1)),
    Operation("pad", lambda x: lax.pad(x, jnp.zeros((), x.dtype), ((1, 1, 0), (0, -1, 1))), (X,), padded),
    Operation("slice_uneven", lambda x: x[1:6, 3:], (X,), lambda x: x[1:6, 3:]),
    Operation("slice_strided", lambda x: x[::3, ::-2], (X,), lambda x: x[::3, ::-2]),
    Operation("slice_empty", lambda x: x[4:4], (X,), lambda x: x[4:4]),
    Operation("roll", lambda x: jnp.roll(x, (1, -3), (0, 1)), (X,), lambda x: np.roll(x, (1, -3), (0, 1))),
    Operation("transpose", lambda x: x.transpose(2, 0, 1), (Operand((8, 1, 8)),), lambda x: x.transpose(2, 0, 1)),
    Operation("reshape_merge", lambda x: x.reshape(-1), (X,), lambda x: x.reshape(-1)),
    Operation("reshape_split", lambda x: x.reshape(2, 4, 4, 4), (X,), lambda x: x.reshape(2, 4, 4, 4)),
    Operation("reshape_across", lambda x: x.reshape(16, 8), (X,), lambda x: x.reshape(16, 8)),
    Operation("reshape_ones", lambda x: x.reshape(8, 1, 16), (Operand((1, 8, 16)),), lambda x: x.reshape(8, 1, 16)),
    Operation(
        "broadcast",
        lambda x: jnp.broadcast_to(x, (4, 8, 16)),
        (Operand((8, 1)),),
        lambda x: np.broadcast_to(x, (4, 8, 16)),
    ),
    Operation("repeat", lambda x: jnp.repeat(x, 3, axis=0), (X,), lambda x: np.repeat(x, 3, axis=0)),
    Operation("tile", lambda x: jnp.tile(x, (2, 1)), (X,), lambda x: np.tile(x, (2, 1))),
    Operation(
        "split",
        lambda x: tuple(jnp.split(x, [3, 11], 1)),
        (X,),
        lambda x: tuple(np.split(x, [3, 11], 1)),
        differentiable=False,
    ),
    Operation(
        "dynamic_slice",
        lambda x, start: lax.dynamic_slice(x, (start[0], start[1]), (4, 3)),
        (X, START),
        lambda x, start: x[corner(start, x.shape, (4, 3))],
    ),
    Operation(
        "dynamic_update_slice",
        lambda x, new, start: lax.dynamic_update_slice(x, new, (start[0], start[1])),
        (X, Operand((4, 8)), START),
        updated,
    ),
    Operation(
        "update_donated",
        lambda x, new: x.at[2:6].add(new),
        (X, Operand((4, 16))),
        lambda x, new: x + np.pad(new, ((2, 2), (0, 0))),
        differentiable=False,
        donates=0,
    ),
    Operation(
        "select",
        lambda which, x, y: jnp.where(which > 0, x, y),
        (Operand((8, 1), "int32"), X, X),
        lambda which, x, y: np.where(which > 0, x, y),
    ),
    Operation(
        "constrain_uneven",
        lambda x: lax.with_sharding_constraint(x[:6] + 1, PartitionSpec("a")),
        (X,),
        lambda x: x[:6] + 1,
        axis_types=("Auto",),
    ),
)
