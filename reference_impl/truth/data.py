"""Draws that are bit for bit the same on every version of every library.

NumPy promises the stream of a bit generator and not that of a distribution (NEP 19), so the draws are made here from
raw 64-bit words by exact arithmetic: the sum of four uniform 16-bit numbers, a bell of unit variance within ±3.5.
Each array has its own stream, named by what it is, so that no value depends on the order or number of the arrays.
"""

from __future__ import annotations

from zlib import crc32

import numpy as np
from numpy.typing import NDArray


def examples(
    step: int, batch: int, classes: int, shape: tuple[int, ...], seed: int
) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
    """``batch`` inputs (B, *shape) and their classes (B,) of one step.

    An example is the prototype of its class plus noise, so that a few steps lower the loss.
    """
    prototypes = draw_bell("prototypes", seed, (classes, *shape))
    class_B = draw_integers(f"classes/{step}", seed, batch, classes)
    return 0.5 * prototypes[class_B] + draw_bell(f"x/{step}", seed, (batch, *shape)), class_B


def draw_chains(step: int, batch: int, length: int, vocab: int, seed: int) -> NDArray[np.int32]:
    """``batch`` sequences of ``length`` tokens of one step (B, length).

    Three tokens in four are followed by the next one on a drawn ring of all tokens, so that a few steps lower the loss.
    """
    ring = np.argsort(draw_words("ring", seed, vocab), kind="stable").astype(np.int32)
    follower = np.zeros_like(ring)
    follower[ring] = np.roll(ring, -1)
    drawn = draw_integers(f"tokens/{step}", seed, batch * length, vocab).reshape(batch, length)
    is_free = draw_integers(f"free/{step}", seed, batch * length, 4).reshape(batch, length) == 0
    for t in range(1, length):
        drawn[:, t] = np.where(is_free[:, t], drawn[:, t], follower[drawn[:, t - 1]])
    return drawn


def draw_integers(name: str, seed: int, count: int, below: int) -> NDArray[np.int32]:
    """``count`` integers from 0 to ``below − 1`` from the stream of that name."""
    return (draw_words(name, seed, count) % np.uint64(below)).astype(np.int32)


def draw_bell(name: str, seed: int, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Bell-shaped draws of mean 0 and variance 1 (Irwin and Hall, n = 4) from the stream of that name."""
    words = draw_words(name, seed, int(np.prod(shape)))
    total = sum((words >> np.uint64(shift)) & np.uint64(0xFFFF) for shift in (0, 16, 32, 48))
    return np.asarray(((np.asarray(total, np.float64) + 2) / 2**16 - 2).reshape(shape) * np.sqrt(3))


def draw_words(name: str, seed: int, count: int) -> NDArray[np.uint64]:
    """``count`` raw 64-bit words from the Philox stream keyed by the seed and the name."""
    key = np.array([seed, crc32(name.encode())], np.uint64)
    return np.asarray(np.random.Philox(key=key).random_raw(count), np.uint64)


def float32(value: NDArray[np.float64]) -> NDArray[np.float32]:
    """The float32 values nearest to these."""
    return value.astype(np.float32)
