"""Sums, extremes, scans and sorts."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from meshproof.operations import Operand, Operation, normal

X = Operand((8, 16))
TINY = Operand((8,))


def distinct(draws: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Whole numbers of which no two are the same: extremes and orders are unique."""
    return draws.permutation(int(np.prod(shape))).reshape(shape) - 40


DISTINCT = Operand((8, 16), draws=(distinct,))
NORMAL = Operand((8, 16), draws=(normal,))


def log_sum_exp(x: np.ndarray) -> np.ndarray:
    """Over the first dimension."""
    return np.log(np.exp(x).sum(0))


REDUCTIONS = (
    Operation("sum", lambda x: x.sum(), (X,), lambda x: x.sum()),
    Operation("sum_rows", lambda x: x.sum(0), (X,), lambda x: x.sum(0)),
    Operation("sum_elements", lambda x: jnp.sum(x * x), (TINY,), lambda x: np.sum(x * x)),
    Operation("mean_kept", lambda x: x.mean(1, keepdims=True), (X,), lambda x: x.mean(1, keepdims=True)),
    Operation("sum_bf16", lambda x: x.sum(1), (Operand((8, 16), "bfloat16"),), lambda x: x.sum(1)),
    Operation("sum_int", lambda x: x.sum(0), (Operand((8, 16), "int32"),), lambda x: x.sum(0)),
    Operation("all", lambda x: (x > -3).all(1), (X,), lambda x: (x > -3).all(1), differentiable=False),
    Operation("max", lambda x: x.max(0), (DISTINCT,), lambda x: x.max(0)),
    Operation("argmin", lambda x: x.argmin(1), (DISTINCT,), lambda x: x.argmin(1), differentiable=False),
    Operation("cumsum", lambda x: jnp.cumsum(x, 0), (X,), lambda x: np.cumsum(x, 0)),
    Operation(
        "cumsum_reverse", lambda x: lax.cumsum(x, 1, reverse=True), (X,), lambda x: x[:, ::-1].cumsum(1)[:, ::-1]
    ),
    Operation("cummax", lambda x: lax.cummax(x, 0), (DISTINCT,), lambda x: np.maximum.accumulate(x, 0)),
    Operation("sort", lambda x: jnp.sort(x, 0), (DISTINCT,), lambda x: np.sort(x, 0)),
    Operation("argsort", lambda x: jnp.argsort(x, 1), (DISTINCT,), lambda x: np.argsort(x, 1), differentiable=False),
    Operation("top_k", lambda x: lax.top_k(x, 3)[0], (DISTINCT,), lambda x: -np.sort(-x, 1)[:, :3]),
    Operation("logsumexp", lambda x: jax.nn.logsumexp(x, 0), (NORMAL,), log_sum_exp, exact=False),
    Operation("variance", lambda x: x.var(0), (NORMAL,), lambda x: x.var(0), exact=False),
    Operation("sum_empty", lambda x: x[:0].sum(0), (X,), lambda x: x[:0].sum(0)),
)
