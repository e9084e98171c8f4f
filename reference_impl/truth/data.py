"""Start values and batches that are bit for bit the same on every version of every library.

NumPy promises the stream of a bit generator and not that of a distribution (NEP 19), so the draws are made here from
raw 64-bit words by exact arithmetic: the sum of four uniform 16-bit numbers, a bell of unit variance within ±3.5.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from meshproof.contract import Batch, Tree

from .mlp import Loss

SEED = 4
"""With it no pre-activation of the default shape comes so near 0 in five steps that its ReLU may flip in float32.

A flip is an honest error of a whole gradient element, which makes the bound wide, and most seeds have one: some 50,000
pre-activations a step, each known to a millionth. Other shapes may need another seed; the judge says so (NUM-10).
"""


def initial_parameters(widths: Sequence[int], seed: int = SEED) -> Tree:
    """Canonical float32 parameters: kernels of variance 2/fan-in (He et al. 2015), biases of deviation 0.05.

    Each leaf has its own stream, named by its path, so that no value depends on the order or number of the leaves.
    """
    check_widths(widths)
    return {
        f"dense_{layer}": {
            "kernel": float32(np.sqrt(2 / fan_in) * draw_bell(f"dense_{layer}/kernel", seed, (fan_in, fan_out))),
            "bias": float32(0.05 * draw_bell(f"dense_{layer}/bias", seed, (fan_out,))),
        }
        for layer, (fan_in, fan_out) in enumerate(pairwise(widths))
    }


def batches(count: int, batch: int, widths: Sequence[int], loss: Loss, seed: int = SEED) -> tuple[Batch, ...]:
    """``count`` different batches of ``batch`` examples: ``x`` (B, D) float32, ``y`` (B,) int32 or (B, C) float32.

    An example is the prototype of its class plus noise, so that a few steps lower the loss: ``y`` is the class for
    ``softmax_cross_entropy``, and the class's own target vector plus noise for ``mean_squared_error``.
    """
    check_widths(widths)
    features, classes = widths[0], widths[-1]
    prototypes_CxD = draw_bell("prototypes", seed, (classes, features))
    targets_CxC = draw_bell("targets", seed, (classes, classes))
    made: list[Batch] = []
    for step in range(count):
        class_B = (draw_words(f"classes/{step}", seed, batch) % np.uint64(classes)).astype(np.int32)
        x_BxD = 0.5 * prototypes_CxD[class_B] + draw_bell(f"x/{step}", seed, (batch, features))
        if loss == "softmax_cross_entropy":
            made.append({"x": float32(x_BxD), "y": class_B})
        else:
            noise_BxC = 0.1 * draw_bell(f"y/{step}", seed, (batch, classes))
            made.append({"x": float32(x_BxD), "y": float32(targets_CxC[class_B] + noise_BxC)})
    return tuple(made)


def draw_bell(name: str, seed: int, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Bell-shaped draws of mean 0 and variance 1 (Irwin and Hall, n = 4) from the stream of that name."""
    words = draw_words(name, seed, int(np.prod(shape)))
    total = sum((words >> np.uint64(shift)) & np.uint64(0xFFFF) for shift in (0, 16, 32, 48))
    return np.asarray(((np.asarray(total, np.float64) + 2) / 2**16 - 2).reshape(shape) * np.sqrt(3))


def draw_words(name: str, seed: int, count: int) -> NDArray[np.uint64]:
    """``count`` raw 64-bit words from the Philox stream keyed by the seed and the name."""
    key = np.array([seed, crc32(name.encode())], np.uint64)
    return np.asarray(np.random.Philox(key=key).random_raw(count), np.uint64)


def check_widths(widths: Sequence[int]) -> None:
    """Raises ``ValueError`` unless there are at least an input and an output, all positive."""
    if len(widths) < 2 or min(widths) < 1:
        raise ValueError(f"widths {tuple(widths)}: an MLP needs at least an input and an output width, all positive")


def float32(value: NDArray[np.float64]) -> NDArray[np.float32]:
    """The float32 values nearest to these."""
    return value.astype(np.float32)
