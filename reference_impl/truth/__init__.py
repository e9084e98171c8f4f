"""What the numbers must be: NumPy in float64, no JAX, and how far float32 rounding may take them from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from meshproof.contract import Batch, Judgement, Tree, leaves

from . import data
from .data import SEED, batches, initial_parameters
from .mlp import LOSSES, Loss
from .optimizers import Adam, AveragedMomentum, Momentum, Optimizer
from .training import train

__all__ = [
    "SEED",
    "Adam",
    "AveragedMomentum",
    "Loss",
    "MLPTruth",
    "Momentum",
    "Optimizer",
    "batches",
    "initial_parameters",
]


@dataclass(frozen=True)
class MLPTruth:
    """The judge of an MLP's numbers: widths from input to output, a loss, an optimizer (a `contract.Truth`)."""

    widths: tuple[int, ...] = (784, 128, 512, 128, 10)
    loss: Loss = "softmax_cross_entropy"
    optimizer: Optimizer = field(default_factory=Momentum)
    seed: int = SEED

    def __post_init__(self) -> None:
        data.check_widths(self.widths)
        if self.loss not in LOSSES:
            raise ValueError(f"loss {self.loss!r} is none of {sorted(LOSSES)}")

    def initial_parameters(self) -> Tree:
        """Canonical float32 start values (see `data.initial_parameters`)."""
        return initial_parameters(self.widths, self.seed)

    def batches(self, count: int, batch: int) -> tuple[Batch, ...]:
        """``count`` host batches of ``batch`` examples (see `data.batches`)."""
        return batches(count, batch, self.widths, self.loss, self.seed)

    def train(self, parameters: Tree, batches: Sequence[Batch]) -> Judgement:
        """One step per batch from ``parameters``: float64 values, and the standard deviation of their float32 rounding.

        Raises ``ValueError`` where a leaf or a field is missing, not float32 or of another shape than the widths say.
        """
        if not batches:
            raise ValueError("no batches: the truth trains one step per batch and needs at least one")
        for number, batch in enumerate(batches):
            self.check_batch(batch, number)
        return train(self.checked_parameters(parameters), batches, self.loss, self.optimizer)

    def checked_parameters(self, parameters: Tree) -> dict[str, np.ndarray]:
        """The flat parameters in the model's order."""
        given = {path: np.asarray(leaf) for path, leaf in leaves(parameters)}
        expected = self.parameter_shapes()
        if given.keys() != expected.keys():
            raise ValueError(
                f"parameters of an MLP of widths {self.widths}: missing {sorted(expected.keys() - given.keys())}, "
                f"unexpected {sorted(given.keys() - expected.keys())}"
            )
        for path, shape in expected.items():
            check_array(path, given[path], shape)
        return {path: given[path] for path in expected}

    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        """The global shape of every parameter by path, in the model's order."""
        shapes: dict[str, tuple[int, ...]] = {}
        for layer, (fan_in, fan_out) in enumerate(pairwise(self.widths)):
            shapes[f"dense_{layer}/kernel"], shapes[f"dense_{layer}/bias"] = (fan_in, fan_out), (fan_out,)
        return shapes

    def check_batch(self, batch: Batch, number: int) -> None:
        """Raises ``ValueError`` naming both shapes where a field is not what the model and the loss take."""
        for name in ("x", "y"):
            if name not in batch:
                raise ValueError(f"batch {number} has the fields {sorted(batch)} and no {name!r}")
        x, y = np.asarray(batch["x"]), np.asarray(batch["y"])
        examples, classes = (x.shape[0] if x.ndim else 0), self.widths[-1]
        check_array(f"batch {number} x", x, (examples, self.widths[0]))
        if not examples:
            raise ValueError(f"batch {number} is empty: x has shape {x.shape}")
        if self.loss == "mean_squared_error":
            check_array(f"batch {number} y", y, (examples, classes))
        elif y.shape != (examples,) or not np.issubdtype(y.dtype, np.integer):
            raise ValueError(f"batch {number} y is {y.dtype}{y.shape}, not integer labels of shape {(examples,)}")
        elif y.min() < 0 or y.max() >= classes:
            raise ValueError(f"batch {number} y has labels from {y.min()} to {y.max()}, outside 0…{classes - 1}")


def check_array(name: str, array: np.ndarray, shape: tuple[int, ...]) -> None:
    """Raises ``ValueError`` unless the array is float32, which the truth takes as exact, and of that shape."""
    if array.shape != shape:
        raise ValueError(f"{name} has shape {array.shape}, expected {shape}")
    if array.dtype != np.float32:
        raise ValueError(f"{name} is {array.dtype}, expected float32: the truth takes its inputs as exact in float32")
