"""Causal multi-head attention: of a device's own keys, of keys that are gathered, and of keys that come round a ring.

In bfloat16 on CUDA a device's own are left to cuDNN's fused kernel, which never holds the (T, S) weights in memory.

Dims: B batch, T queries, S keys, H heads, K head_dim. Every head looks by itself, a query at keys up to its position.
"""

from __future__ import annotations

import re
from math import sqrt
from typing import Any

import jax
import jax.numpy as jnp
from jax.lax import all_gather, axis_index, axis_size, ppermute, stop_gradient

FUSES = re.compile(r"NVIDIA ((A|L|H|GH|B|GB)\d|RTX |GeForce RTX [3-9])")
"""The kinds of device that cuDNN's kernel runs on: NVIDIA's Ampere or newer. A mesh knows no more of its devices."""

MASKED = -1e30
"""The score of a key that comes after the query: its weight is exactly zero."""


def attention(q_BxTxHxK: jax.Array, k_BxSxHxK: jax.Array, v_BxSxHxK: jax.Array) -> jax.Array:
    """(B, T, H, K): the values of the keys that each query sees, weighted by the softmax of its scores."""
    if fits_cudnn(q_BxTxHxK, jax.sharding.get_abstract_mesh().abstract_device):
        return jax.nn.dot_product_attention(q_BxTxHxK, k_BxSxHxK, v_BxSxHxK, is_causal=True, implementation="cudnn")
    return weighted(q_BxTxHxK, k_BxSxHxK, v_BxSxHxK, first_query=0)


def weighted(
    q_BxTxHxK: jax.Array, k_BxSxHxK: jax.Array, v_BxSxHxK: jax.Array, first_query: jax.Array | int
) -> jax.Array:
    """`attention` in operations of JAX, of queries that stand at ``first_query`` of the S positions and after it."""
    p_BxHxTxS = jax.nn.softmax(scores(q_BxTxHxK, k_BxSxHxK, first_query, 0))
    return jnp.einsum("bhts,bshk->bthk", p_BxHxTxS, v_BxSxHxK)


def fits_cudnn(q_BxTxHxK: jax.Array, device: Any) -> bool:
    """Whether cuDNN's fused attention takes such queries on the mesh's ``device``; without a mesh it is ``None``.

    That is 16-bit floats with a K that is a multiple of 8 up to 128. ``jax.nn.dot_product_attention`` raises where it
    takes them not, and where the host has no cuDNN.
    """
    platform = getattr(device, "platform", "gpu")  # before JAX 0.10 a mesh tells the kind alone
    if device is None or platform != "gpu" or not FUSES.match(device.device_kind):
        return False
    narrow, head_dim = q_BxTxHxK.dtype in (jnp.bfloat16, jnp.float16), q_BxTxHxK.shape[-1]
    return narrow and head_dim % 8 == 0 and head_dim <= 128


def gathered_attention(q_BxTxHxK: jax.Array, k_BxSxHxK: jax.Array, v_BxSxHxK: jax.Array, over: str) -> jax.Array:
    """`attention` of a sequence that is split in order over the mesh axis ``over``, in ``shard_map``.

    Each device gathers all keys and values for its own queries.
    """
    keys_BxSxHxK, values_BxSxHxK = all_gather((k_BxSxHxK, v_BxSxHxK), over, axis=1, tiled=True)
    return weighted(q_BxTxHxK, keys_BxSxHxK, values_BxSxHxK, axis_index(over) * q_BxTxHxK.shape[1])


def ring_attention(q_BxTxHxK: jax.Array, k_BxSxHxK: jax.Array, v_BxSxHxK: jax.Array, over: str) -> jax.Array:
    """`attention` of a sequence that is split in order over the mesh axis ``over``, in ``shard_map``.

    Keys and values go round; each device keeps the running maximum, sum and output of its own queries' softmax
    (Liu et al. 2023, "Ring Attention with Blockwise Transformers for Near-Infinite Context").
    """
    devices, here, length = axis_size(over), axis_index(over), q_BxTxHxK.shape[1]
    maximum_BxHxT = jnp.full_like(q_BxTxHxK[..., 0].swapaxes(1, 2), -jnp.inf)
    total_BxHxT, o_BxTxHxK = jnp.zeros_like(maximum_BxHxT), jnp.zeros_like(q_BxTxHxK)
    k_v = k_BxSxHxK, v_BxSxHxK
    for hop in range(devices):
        k, v = k_v
        score_BxHxTxS = scores(q_BxTxHxK, k, here * length, (here - hop) % devices * length)
        largest_BxHxT = jnp.maximum(maximum_BxHxT, stop_gradient(score_BxHxTxS).max(-1))
        weight_BxHxTxS = jnp.exp(score_BxHxTxS - largest_BxHxT[..., None])
        decay_BxHxT = jnp.exp(maximum_BxHxT - largest_BxHxT)
        total_BxHxT = total_BxHxT * decay_BxHxT + weight_BxHxTxS.sum(-1)
        decay_BxTxHx1 = decay_BxHxT.swapaxes(1, 2)[..., None]
        o_BxTxHxK = o_BxTxHxK * decay_BxTxHx1 + jnp.einsum("bhts,bshk->bthk", weight_BxHxTxS, v)
        maximum_BxHxT = largest_BxHxT
        if hop < devices - 1:
            k_v = ppermute(k_v, over, [(i, (i + 1) % devices) for i in range(devices)])
    return o_BxTxHxK / total_BxHxT.swapaxes(1, 2)[..., None]


def scores(
    q_BxTxHxK: jax.Array, k_BxSxHxK: jax.Array, first_query: jax.Array | int, first_key: jax.Array | int
) -> jax.Array:
    """(B, H, T, S): scaled products of queries and keys; `MASKED` where a key comes after the query."""
    T, S = q_BxTxHxK.shape[1], k_BxSxHxK.shape[1]
    score_BxHxTxS = jnp.einsum("bthk,bshk->bhts", q_BxTxHxK, k_BxSxHxK) / sqrt(q_BxTxHxK.shape[-1])
    seen_TxS = (first_query + jnp.arange(T))[:, None] >= first_key + jnp.arange(S)
    return jnp.where(seen_TxS, score_BxHxTxS, MASKED)
