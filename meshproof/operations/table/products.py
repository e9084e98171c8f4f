"""Products of matrices, with and without batch dimensions, and convolutions."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import lax

from meshproof.operations import Operand, Operation


def groups(*sizes: int):  # type: ignore[no-untyped-def]
    """Draws these sizes of groups."""
    return lambda draws, shape: np.array(sizes)


def by_group(x: np.ndarray, w: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """``lax.ragged_dot`` in NumPy: rows beyond the last group are 0."""
    group = np.repeat(np.arange(len(sizes)), sizes)
    result = np.zeros((len(x), w.shape[2]))
    for row, own in enumerate(group):
        result[row] = x[row] @ w[own]
    return result


def convolved(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """A convolution of width 3 over the middle dimension, padded by zeros."""
    wide = np.pad(x, ((0, 0), (1, 1), (0, 0)))
    return sum(np.einsum("bsi,io->bso", wide[:, k : k + x.shape[1]], w[k]) for k in range(3))


PRODUCTS = (
    Operation("matmul", lambda x, y: x @ y, (Operand((8, 16)), Operand((16, 8))), lambda x, y: x @ y),
    Operation("matvec", lambda x, y: x @ y, (Operand((8, 8)), Operand((8,))), lambda x, y: x @ y),
    Operation(
        "product_summed",
        lambda x: (x @ jnp.ones((64, 64), x.dtype)).sum(1),
        (Operand((64, 64)),),
        lambda x: (x @ np.ones((64, 64))).sum(1),
    ),
    Operation("outer", lambda x, y: jnp.outer(x, y), (Operand((8,)), Operand((8,))), lambda x, y: np.outer(x, y)),
    Operation("matmul_bf16", lambda x, y: x @ y, (Operand((8, 8), "bfloat16"),) * 2, lambda x, y: x @ y),
    Operation("matmul_int", lambda x, y: x @ y, (Operand((8, 8), "int32"),) * 2, lambda x, y: x @ y),
    Operation(
        "einsum_batched",
        lambda x, y: jnp.einsum("bij,bjk->bik", x, y),
        (Operand((8, 4, 2)), Operand((8, 2, 8))),
        lambda x, y: np.einsum("bij,bjk->bik", x, y),
    ),
    Operation(
        "einsum_heads",
        lambda x, y: jnp.einsum("bqhd,bkhd->bhqk", x, y),
        (Operand((2, 4, 8, 2)), Operand((2, 4, 8, 2))),
        lambda x, y: np.einsum("bqhd,bkhd->bhqk", x, y),
    ),
    Operation(
        "einsum_contracted",
        lambda x, y: jnp.einsum("ij,ij->", x, y),
        (Operand((8, 8)), Operand((8, 8))),
        lambda x, y: np.einsum("ij,ij->", x, y),
    ),
    Operation(
        "ragged_dot",
        lambda x, w, sizes: lax.ragged_dot(x, w, sizes),
        (Operand((16, 8)), Operand((4, 8, 8)), Operand((4,), "int32", (groups(5, 0, 8, 3), groups(0, 0, 16, 0)))),
        by_group,
    ),
    Operation(
        "convolution",
        lambda x, w: lax.conv_general_dilated(x, w, (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC")),
        (Operand((8, 8, 2)), Operand((3, 2, 8))),
        convolved,
    ),
)
