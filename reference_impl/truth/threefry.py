"""JAX's random bits in NumPy: Threefry-2x32 with 20 rounds, in the counter layout that does not depend on sharding.

Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011). An element's bits depend on the key and on its
position in the whole array alone (``jax_threefry_partitionable``), so every device can draw its own part.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint32]
Key = tuple[int, int]

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA


def make_key(seed: int) -> Key:
    """``jax.random.key(seed, impl="threefry2x32")``."""
    return seed >> 32, seed & 0xFFFFFFFF


def fold_in(key: Key, number: int) -> Key:
    """``jax.random.fold_in(key, number)``."""
    high, low = encrypt(key, np.zeros(1, np.uint32), np.array([number], np.uint32))
    return int(high[0]), int(low[0])


def draw_bits(key: Key, shape: tuple[int, ...]) -> Words:
    """``jax.random.bits(key, shape, "uint32")``."""
    position = np.arange(np.prod(shape), dtype=np.uint64)
    high, low = encrypt(key, (position >> np.uint64(32)).astype(np.uint32), position.astype(np.uint32))
    return (high ^ low).reshape(shape)


def draw_bernoulli(key: Key, chance: float, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """``jax.random.bernoulli(key, chance, shape)``: a uniform number of 23 bits is below the chance in float32."""
    return (draw_bits(key, shape) >> np.uint32(9)) * 2.0**-23 < np.float32(chance)


def encrypt(key: Key, x: Words, y: Words) -> tuple[Words, Words]:
    """The block cipher on every pair (x, y)."""
    schedule = [np.uint32(word) for word in (*key, key[0] ^ key[1] ^ PARITY)]
    x, y = x + schedule[0], y + schedule[1]
    for turn in range(5):
        for by in ROTATIONS[turn % 2]:
            x = x + y
            y = (y << np.uint32(by)) | (y >> np.uint32(32 - by))
            y = x ^ y
        x, y = x + schedule[(turn + 1) % 3], y + schedule[(turn + 2) % 3] + np.uint32(turn + 1)
    return x, y
