"""The judge of hand-written gradients: central differences of the loss in float64."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from meshproof.contract import Batch, leaves
from reference_impl.truth.judge import ModelTruth
from reference_impl.truth.rounding import exact


def check_gradients(truth: ModelTruth, batch: Batch, step: float = 1e-5, draws: int = 0) -> dict[str, np.ndarray]:
    """Every element of every leaf's gradient, or each leaf's along ``draws`` drawn directions, equals the difference.

    Returns the gradients. They equal to 1e-6 of the difference, and to 1e-14 / ``step``, which is what float64 leaves
    of a difference of losses near one.
    """
    start = {path: leaf.astype(np.float64) for path, leaf in leaves(truth.initial_parameters())}

    def loss_at(path: str, moved: np.ndarray) -> float:
        values = {name: exact(moved if name == path else value) for name, value in start.items()}
        return float(truth.loss_and_gradients(values, batch)[0].value)

    _, gradients = truth.loss_and_gradients({path: exact(value) for path, value in start.items()}, batch)
    assert list(gradients) == list(start)
    for path, gradient in gradients.items():
        assert gradient.value.shape == start[path].shape
        for direction in directions(gradient.value.shape, draws):
            ahead, behind = (loss_at(path, start[path] + length * direction) for length in (step, -step))
            along = float((gradient.value * direction).sum())
            assert along == pytest.approx((ahead - behind) / (2 * step), rel=1e-6, abs=1e-14 / step), path
    return {path: gradient.value for path, gradient in gradients.items()}


def directions(shape: tuple[int, ...], draws: int) -> Iterator[Any]:
    """That of each element, or so many drawn ones."""
    rng = np.random.default_rng(0)
    for _ in range(draws):
        yield rng.normal(size=shape)
    for index in np.ndindex(shape) if not draws else ():
        unit = np.zeros(shape)
        unit[index] = 1
        yield unit
