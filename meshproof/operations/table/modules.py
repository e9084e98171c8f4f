"""Flax's own modules and JAX's own attention, by their formulas in NumPy. What a module keeps is an operand, too."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import lax

from meshproof.operations import Operand, Operation, normal, whole_numbers
from meshproof.operations.table.networks import FEATURES, X, softmax

EPSILON = 1e-6
"""Flax's."""

WINDOW = 2
"""Positions before its own that a query sees."""


def held(module: Any, **values: Any) -> Any:
    """A module with these parameters."""
    for name, value in values.items():
        getattr(module, name)[...] = value
    return module


def rms_numpy(x: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Zhang and Sennrich (2019)."""
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + EPSILON) * scale


def grouped_numpy(x: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Wu and He (2018), eight features to a group."""
    groups = x.reshape(len(x), -1, 8)
    centred = groups - groups.mean(-1, keepdims=True)
    return (centred / np.sqrt((centred**2).mean(-1, keepdims=True) + EPSILON)).reshape(x.shape) * scale


def windowed(stack: jax.Array) -> jax.Array:
    """Queries, keys and values, one after the other: (3, batch, positions, heads, features)."""
    return jax.nn.dot_product_attention(*stack, is_causal=True, local_window_size=(WINDOW, 0))


def windowed_numpy(stack: np.ndarray) -> np.ndarray:
    """The same."""
    q, k, v = stack
    scores = np.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(q.shape[-1])
    behind = np.arange(q.shape[1])[:, None] - np.arange(k.shape[1])
    scores = np.where((behind >= 0) & (behind <= WINDOW), scores, -np.inf)
    return np.einsum("bhqk,bkhd->bqhd", softmax(scores), v)


def added_up(x: jax.Array) -> jax.Array:
    """The sums of the rows so far, four steps of the loop as one, and three left."""
    return lax.scan(lambda total, row: (total + row, total + row), 0 * x[0], x, unroll=4)[1]


TAPS = (1.0, 2.0, 3.0)
"""Of a causal convolution, the last one at its own position."""

MOMENTUM = 0.9
"""Of running statistics."""


def layers(x: jax.Array) -> jax.Array:
    """Pooling, a causal convolution, and norms of two parts of a batch, whose statistics run or whose epsilon shows."""
    wide, kernel = x[..., None], jnp.asarray(TAPS, x.dtype)[:, None, None]
    scaled = {"scale": jnp.ones(16, x.dtype), "bias": jnp.zeros(16, x.dtype)}
    running = {"mean": jnp.ones(16, x.dtype), "var": jnp.full(16, 4.0, x.dtype)}
    norm = nn.BatchNorm(use_running_average=False, momentum=MOMENTUM, axis_name="parts")

    def of_part(part: jax.Array) -> Any:
        return norm.apply({"params": scaled, "batch_stats": running}, part, mutable=["batch_stats"])

    normed, kept = jax.vmap(of_part, axis_name="parts")(x.reshape(2, 4, 16))
    evaluated = nn.BatchNorm(use_running_average=True).apply({"params": scaled, "batch_stats": running}, x)
    convolve = nnx.Conv(1, 1, 3, padding="CAUSAL", use_bias=False, param_dtype=x.dtype, rngs=nnx.Rngs(0))
    heads = x.reshape(2, 4, 4, 4)
    found = [
        *(nn.avg_pool(wide[None], (2, 4), (2, 4)), nn.max_pool(wide[None], (2, 4), (2, 4))),
        *(held(convolve, kernel=kernel)(wide), normed),
        *(kept["batch_stats"]["mean"][0], kept["batch_stats"]["var"][1], evaluated),
        *(nn.LayerNorm().apply({"params": scaled}, x / 1e3), nn.dot_product_attention(heads, heads, heads)),
    ]
    return jnp.concatenate([each.ravel() for each in found])


def layers_numpy(x: np.ndarray) -> np.ndarray:
    """The same, with Flax's epsilons."""
    pools, padded = x.reshape(4, 2, 4, 4), np.pad(x, ((0, 0), (2, 0)))
    small, heads = x / 1e3, x.reshape(2, 4, 4, 4)
    chances = softmax(np.einsum("bqhd,bkhd->bhqk", heads, heads) / 2)
    found = [
        *(pools.mean((1, 3)), pools.max((1, 3)), sum(tap * padded[:, at : at + 16] for at, tap in enumerate(TAPS))),
        (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5),
        *(MOMENTUM + (1 - MOMENTUM) * x.mean(0), MOMENTUM * 4 + (1 - MOMENTUM) * x.var(0), (x - 1) / np.sqrt(4 + 1e-5)),
        (small - small.mean(-1, keepdims=True)) / np.sqrt(small.var(-1, keepdims=True) + EPSILON),
        np.einsum("bhqk,bkhd->bqhd", chances, heads),
    ]
    return np.concatenate([np.ravel(each) for each in found])


MODULES = (
    Operation(
        "flax_layers",
        layers,
        (X,),
        layers_numpy,
        exact=False,
        differentiable=False,
        axis_types=("Auto",),
        most=2,
    ),
    Operation(
        "nnx_rms_norm",
        lambda x, scale: held(nnx.RMSNorm(16, param_dtype=x.dtype, rngs=nnx.Rngs(0)), scale=scale)(x),
        (X, FEATURES),
        rms_numpy,
        exact=False,
        most=8,
    ),
    Operation(
        "linen_rms_norm",
        lambda x, scale: nn.RMSNorm().apply({"params": {"scale": scale}}, x),
        (X, FEATURES),
        rms_numpy,
        exact=False,
        axis_types=("Auto",),
        most=8,
    ),
    Operation(
        "nnx_group_norm",
        lambda x, scale: held(nnx.GroupNorm(16, None, 8, param_dtype=x.dtype, rngs=nnx.Rngs(0)), scale=scale)(x),
        (X, FEATURES),
        grouped_numpy,
        exact=False,
        axis_types=("Auto",),
        most=8,
    ),
    Operation(
        "nnx_attend",
        lambda x, table: held(nnx.Embed(8, 16, param_dtype=x.dtype, rngs=nnx.Rngs(0)), embedding=table).attend(x),
        (Operand((8, 16)), Operand((8, 16))),
        lambda x, table: x @ table.T,
        axis_types=("Auto",),
        most=8,
    ),
    Operation(
        "attention_windowed",
        windowed,
        (Operand((3, 2, 8, 4, 2), draws=(normal,)),),
        windowed_numpy,
        exact=False,
        axis_types=("Auto",),
        most=8,
    ),
    Operation(
        "scan_unrolled",
        added_up,
        (Operand((7, 8), draws=(whole_numbers,)),),
        lambda x: np.cumsum(x, 0),
    ),
)
