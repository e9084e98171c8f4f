"""What layers and losses are made of. Their numbers are rounded, so a bound judges them; the draws are exact."""

from __future__ import annotations

from math import erf

import jax
import jax.numpy as jnp
import numpy as np

from meshproof.operations import Operand, Operation, normal

X = Operand((8, 16), draws=(normal,))
FEATURES = Operand((16,), draws=(normal,))
LABELS = Operand((8,), "int32", (lambda draws, shape: draws.integers(0, 16, size=shape),))


def softmax(x: np.ndarray) -> np.ndarray:
    """Over the last dimension."""
    return np.exp(x) / np.exp(x).sum(-1, keepdims=True)


def normalized(x: jax.Array, scale: jax.Array) -> jax.Array:
    """Layer norm without a bias."""
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * scale


def normalized_numpy(x: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """The same."""
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * scale


def attend(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """Attention over (batch, sequence, features)."""
    return jnp.einsum("bqk,bkd->bqd", jax.nn.softmax(jnp.einsum("bqd,bkd->bqk", q, k), -1), v)


def attend_numpy(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """The same."""
    return np.einsum("bqk,bkd->bqd", softmax(np.einsum("bqd,bkd->bqk", q, k)), v)


def cross_entropy(x: jax.Array, labels: jax.Array) -> jax.Array:
    """The mean over examples."""
    picked = jnp.sum(jax.nn.one_hot(labels, 16) * x, -1)
    return jnp.mean(jax.nn.logsumexp(x, -1) - picked)


def cross_entropy_numpy(x: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The same."""
    return np.mean(np.log(np.exp(x).sum(-1)) - x[np.arange(8), labels])


def dropped(x: jax.Array, seed: jax.Array) -> jax.Array:
    """Half of the elements, by random bits that must not depend on how x is sharded."""
    bits = jax.random.bits(jax.random.key(seed[0]), (8, 16), "uint32")
    return jnp.where(bits % 2 == 0, x, 0)


NETWORKS = (
    Operation("softmax", lambda x: jax.nn.softmax(x, -1), (X,), softmax, exact=False),
    Operation("layer_norm", normalized, (X, FEATURES), normalized_numpy, exact=False),
    Operation(
        "gelu",
        lambda x: jax.nn.gelu(x, approximate=False),
        (X,),
        lambda x: x * (1 + np.vectorize(erf)(x / np.sqrt(2))) / 2,
        exact=False,
    ),
    Operation(
        "relu",
        lambda x: jax.nn.relu(x),
        (Operand((8, 16), draws=(lambda draws, shape: 2 * draws.integers(-3, 4, size=shape) + 1,)),),
        lambda x: np.maximum(x, 0),
    ),
    Operation("attention", attend, (Operand((8, 4, 2), draws=(normal,)),) * 3, attend_numpy, exact=False),
    Operation("cross_entropy", cross_entropy, (X, LABELS), cross_entropy_numpy, exact=False),
    Operation("dropout", dropped, (Operand((8, 16)), Operand((1,), "uint32", (lambda draws, shape: np.array([7]),)))),
)
