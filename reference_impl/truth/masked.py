"""Masked batches: the truth is that of the valid examples alone, as if the padding had never been."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from meshproof.contract import Batch, Evaluation, Tree

from .judge import ModelTruth
from .optimizers import Optimizer, Values
from .rounding import Array, Rounded

VALID = (8, 5, 0, 7, 1, 8, 3, 6)
"""How many eighths of each eighth of a batch are valid: on eight devices one has nothing to do, and two are full."""


@dataclass(frozen=True)
class MaskedTruth(ModelTruth):
    """The truth of a model whose batches are padded. A batch without a mask has no padding."""

    model: ModelTruth

    @property
    def optimizer(self) -> Optimizer:  # type: ignore[override]
        """The model's."""
        return self.model.optimizer

    def in_bfloat16(self) -> ModelTruth:
        """The model's, masked."""
        return replace(self, model=self.model.in_bfloat16())

    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        """The model's."""
        return self.model.parameter_shapes()

    def draw(self, path: str, shape: tuple[int, ...]) -> Array:
        """The model's."""
        return self.model.draw(path, shape)

    def batches(self, count: int, batch: int) -> tuple[Batch, ...]:
        """The model's, with a ``mask`` (B,): each eighth is valid up to somewhere, another part of it at each step.

        Padding looks like any other example. Raises ``ValueError`` where there are no eighths.
        """
        if batch % len(VALID):
            raise ValueError(f"batch of {batch} examples is not divisible by {len(VALID)} parts")
        share = batch // len(VALID)
        drawn = self.model.batches(count, batch)
        return tuple({**one, "mask": mask(np.roll(VALID, step), share)} for step, one in enumerate(drawn))

    def check_batch(self, batch: Batch, number: int) -> None:
        """Raises ``ValueError`` as the model does of what is valid, or where the mask is no truth value each."""
        self.model.check_batch(valid(batch), number)

    def evaluate(self, parameters: Tree, batches: Sequence[Batch]) -> Evaluation:
        """The model's, of what is valid."""
        return self.model.evaluate(parameters, [valid(batch) for batch in batches])

    def loss_and_gradients(
        self, parameters: Values, batch: Mapping[str, np.ndarray], lean: float = 0
    ) -> tuple[Rounded, dict[str, Rounded]]:
        """The model's, of what is valid."""
        return self.model.loss_and_gradients(parameters, valid(batch), lean)


def mask(eighths: np.ndarray, share: int) -> np.ndarray:
    """(B,) truth values: in each of the parts, of ``share`` examples, so many eighths."""
    return np.concatenate([np.arange(share) < share * eighth // len(VALID) for eighth in eighths])


def valid(batch: Batch) -> Batch:
    """The valid examples, without the mask. Raises ``ValueError`` where it is no truth value for each example."""
    fields = dict(batch)
    if "mask" not in fields:
        return fields
    mask_B = np.asarray(fields.pop("mask"))
    for name, field in fields.items():
        if mask_B.dtype != np.bool_ or mask_B.shape != field.shape[:1]:
            raise ValueError(f"mask is {mask_B.dtype}{mask_B.shape}, expected bool{field.shape[:1]} for {name}")
    return {name: field[mask_B] for name, field in fields.items()}
