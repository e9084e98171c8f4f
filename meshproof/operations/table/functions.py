"""What JAX computes of numbers, whatever their layout: by its formula in NumPy, under two layouts.

Functions that are compiled together are one operation; a result's first index says which.
"""

from __future__ import annotations

from functools import partial
from math import erf
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.flatten_util import ravel_pytree

from meshproof.operations import Operand, Operation, normal, whole_numbers
from meshproof.operations.table.networks import X, softmax

MASK = Operand((8, 16), "int32", (lambda draws, shape: np.maximum(draws.integers(0, 2, size=shape), np.eye(8, 16)),))
"""Half of the elements, and of each row at least one."""

LARGE = 100.0
"""Beyond the logarithm of what float32 holds, 88."""

STEEP = 1.702
"""Hendrycks and Gimpel (2016): of a sigmoid near the GELU."""


def activations(x: jax.Array) -> jax.Array:
    """Of one number each."""
    nn = jax.nn
    return jnp.stack(
        [
            *(nn.silu(x), nn.gelu(x), nn.gelu(x, approximate=False), nn.sigmoid(x), nn.softplus(x), jnp.tanh(x)),
            *(nn.elu(x), nn.leaky_relu(x), nn.relu(x), nn.selu(x), nn.log_sigmoid(x), x * nn.sigmoid(STEEP * x)),
            *(
                jnp.log1p(x**2),
                jnp.expm1(x),
                jnp.logaddexp(x, -x),
                lax.rsqrt(1 + x**2),
                lax.erf(x),
                lax.clamp(jnp.full_like(x, -1), x, jnp.full_like(x, 1)),
            ),
            *(jnp.where(x > 0, x, 2 * x), jnp.sin(x), jnp.exp2(x), lax.integer_pow(x, 3)),
        ]
    )


def activations_numpy(x: np.ndarray) -> np.ndarray:
    """The same."""
    sigmoid = 1 / (1 + np.exp(-x))
    alpha, scale = 1.6732632423543772, 1.0507009873554805
    error = np.vectorize(erf)(x)
    return np.stack(
        [
            *(x * sigmoid, x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) / 2),
            *(x * (1 + np.vectorize(erf)(x / np.sqrt(2))) / 2, sigmoid, np.log1p(np.exp(x)), np.tanh(x)),
            *(np.where(x > 0, x, np.expm1(x)), np.where(x > 0, x, 0.01 * x), np.maximum(x, 0)),
            *(scale * np.where(x > 0, x, alpha * np.expm1(x)), np.log(sigmoid), x / (1 + np.exp(-STEEP * x))),
            *(np.log1p(x**2), np.expm1(x), np.log(np.exp(x) + np.exp(-x)), 1 / np.sqrt(1 + x**2), error),
            *(np.clip(x, -1, 1), np.where(x > 0, x, 2 * x), np.sin(x), 2.0**x, x**3),
        ]
    )


def of_large(x: jax.Array) -> jax.Array:
    """Softmax, its logarithm, and its normalizer, of logits that overflow."""
    x = LARGE * x
    sums = jnp.broadcast_to(jax.nn.logsumexp(x, -1, keepdims=True), x.shape)
    return jnp.stack([jax.nn.softmax(x, -1), jax.nn.log_softmax(x, -1), sums])


def of_large_numpy(x: np.ndarray) -> np.ndarray:
    """The same, less the largest of each row."""
    x = LARGE * x
    most = x.max(-1, keepdims=True)
    sums = most + np.log(np.exp(x - most).sum(-1, keepdims=True))
    return np.stack([softmax(x - most), x - sums, np.broadcast_to(sums, x.shape)])


def of_chosen(x: jax.Array, mask: jax.Array) -> jax.Array:
    """Reductions of the elements that a mask chooses."""
    where = mask > 0
    return jnp.stack(
        [
            *(x.sum(-1, where=where), x.mean(-1, where=where), x.var(-1, where=where), x.std(-1, where=where, ddof=-1)),
            *(x.max(-1, where=where, initial=-9.0), x.min(-1, where=where, initial=9.0)),
            *(jax.nn.logsumexp(x, -1, where=where), (jax.nn.softmax(x, -1, where=where) * x).sum(-1)),
        ]
    )


def of_chosen_numpy(x: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """The same."""
    where = mask > 0
    weights = np.exp(x) * where
    return np.stack(
        [
            *(x.sum(-1, where=where), x.mean(-1, where=where), x.var(-1, where=where)),
            np.sqrt(((x - x.mean(-1, where=where, keepdims=True)) ** 2).sum(-1, where=where) / (where.sum(-1) + 1)),
            *(x.max(-1, where=where, initial=-9.0), x.min(-1, where=where, initial=9.0)),
            *(np.log(weights.sum(-1)), (weights * x).sum(-1) / weights.sum(-1)),
        ]
    )


def in_batches(x: jax.Array) -> jax.Array:
    """Of each row in a batch of rows: sums so far, sorted, the largest, and sums from its end; these of columns too."""
    back: Any = partial(lax.associative_scan, jnp.add, reverse=True)
    every: list[Any] = [jnp.cumsum, jnp.sort, lambda row: lax.top_k(row, 16)[0], back]
    return jnp.stack([*(jax.vmap(each)(x) for each in every), jax.vmap(back, 1, 1)(x)])


def in_batches_numpy(x: np.ndarray) -> np.ndarray:
    """The same."""
    back, up = np.cumsum(x[:, ::-1], 1)[:, ::-1], np.cumsum(x[::-1], 0)[::-1]
    return np.stack([np.cumsum(x, 1), np.sort(x, 1), -np.sort(-x, 1), back, up])


def in_loops(x: jax.Array) -> jax.Array:
    """Loops and branches: in parts that do not divide the rows, backwards, from a bound, and beyond the last branch."""
    branches = [lambda row, times=times: times * row for times in (2.0, 3.0, 5.0)]
    return jnp.stack(
        [
            lax.map(lambda row: 2 * row, x, batch_size=3),
            lax.scan(lambda total, row: (total + row, total + row), 0 * x[0], x, reverse=True)[1],
            lax.fori_loop(2, 5, lambda count, total: total + count * x, x),
            jnp.stack([lax.switch(number - 1, branches, x[number]) for number in range(8)]),
            lax.cond(x[0, 0] > 9, lambda x: x, lambda x: -x, x),
        ]
    )


def in_loops_numpy(x: np.ndarray) -> np.ndarray:
    """The same."""
    chosen = np.array([2, 2, 3, 5, 5, 5, 5, 5])[:, None] * x
    return np.stack([2 * x, np.cumsum(x[::-1], 0)[::-1], (1 + 2 + 3 + 4) * x, chosen, -x])


def derived(x: jax.Array) -> jax.Array:
    """Derivatives as trainers take them: by one of two arguments, of values beside others, through what stops them, of
    leaves of two dtypes as one vector, and by rules of one's own; and a loop that has none."""

    scaled: Any = jax.custom_vjp(lambda times, more, x: times * x + more, nondiff_argnums=(0, 1))
    scaled.defvjp(
        lambda times, more, x: (times * x + more, None), lambda times, more, _, back: ((10 * times + more) * back,)
    )
    one, other = x[:4], x[4:]

    def product(one: jax.Array, other: jax.Array) -> jax.Array:
        return (one**2 * other).sum()

    vector, back = ravel_pytree({"a": one.astype(jnp.bfloat16), "b": other})
    by_other, by_one = jax.grad(product, (1, 0))(one, other)
    (value, _), beside = jax.value_and_grad(lambda x: ((x**2).sum(), x), has_aux=True)(x)
    return jnp.stack(
        [
            jnp.concatenate([jax.grad(product, 1)(one, other), jax.grad(product, argnums=0)(one, other)]),
            jnp.concatenate([by_one, by_other]),
            beside + 0 * value,
            jax.grad(lambda x: (lax.stop_gradient(x) * x).sum())(x),
            jax.grad(lambda x: scaled(3.0, 1.0, x).sum())(x),
            jnp.concatenate([back(2 * vector)["a"].astype(x.dtype), back(2 * vector)["b"]]),
            jnp.full_like(x, vector.dtype.itemsize),
            jax.jvp(lambda x: x**2, (x,), (x,))[1],
            lax.while_loop(lambda carry: carry[0] < 3, lambda carry: (carry[0] + 1, 2 * carry[1]), (0, x))[1],
        ]
    )


def derived_numpy(x: np.ndarray) -> np.ndarray:
    """The same."""
    one, other = x[:4], x[4:]
    by_one, by_other = 2 * one * other, one**2
    by_both = [np.concatenate([by_other, by_one]), np.concatenate([by_one, by_other])]
    return np.stack([*by_both, 2 * x, x, np.full_like(x, 31), 2 * x, np.full_like(x, 4), 2 * x**2, 8 * x])


def attended(stack: jax.Array, bias: jax.Array) -> jax.Array:
    """JAX's own attention of (batch, positions, heads, features): two heads for each of a key's, with a bias and a
    scale; of the first positions; and of those near a query."""
    q, (k, v) = stack[0], stack[1:, :, :, :2]
    grouped = jax.nn.dot_product_attention(q, k, v, bias=bias, scale=0.7)
    shorter = jax.nn.dot_product_attention(q, k, v, key_value_seq_lengths=jnp.array(LENGTHS, jnp.int32))
    near = jax.nn.dot_product_attention(q, k, v, local_window_size=(1, 2))
    return jnp.stack([grouped, shorter, near])


LENGTHS = (3, 8)
"""Of two examples, positions that have a key."""


def attended_numpy(stack: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """The same."""
    q, (k, v) = stack[0], np.repeat(stack[1:, :, :, :2], 2, axis=3)
    scores = np.einsum("bqhd,bkhd->bhqk", q, k)
    ahead = np.arange(8) - np.arange(8)[:, None]
    masks = (
        np.ones((2, 1, 8, 8)),
        np.arange(8) < np.array(LENGTHS)[:, None, None, None] + np.zeros((1, 1, 8, 1)),
        (ahead >= -1) & (ahead <= 2) & np.ones((2, 1, 8, 8), bool),
    )
    given = (0.7 * scores + bias, scores / np.sqrt(q.shape[-1]), scores / np.sqrt(q.shape[-1]))
    chances = (softmax(np.where(mask, each, -np.inf)) for each, mask in zip(given, masks, strict=True))
    return np.stack([np.einsum("bhqk,bkhd->bqhd", each, v) for each in chances])


def briefly(name: str, function: Any, judge: Any, *operands: Operand, **more: Any) -> Operation:
    """Under two layouts on automatic axes."""
    return Operation(name, function, operands, judge, axis_types=("Auto",), most=2, **more)


WHOLE = Operand((8, 16), draws=(whole_numbers,))

FUNCTIONS = (
    briefly("activations", activations, activations_numpy, X, exact=False),
    briefly("large_logits", of_large, of_large_numpy, X, exact=False),
    briefly("masked_reductions", of_chosen, of_chosen_numpy, X, MASK, exact=False),
    briefly("batches", in_batches, in_batches_numpy, WHOLE, differentiable=False),
    briefly("loops", in_loops, in_loops_numpy, WHOLE),
    briefly("derivatives", derived, derived_numpy, WHOLE, differentiable=False),
    briefly(
        "attention_grouped",
        attended,
        attended_numpy,
        *(Operand((3, 2, 8, 4, 2), draws=(normal,)), Operand((2, 4, 8, 8), draws=(normal,))),
        exact=False,
    ),
)
