"""What the truths of all models share: they start from given values, check what they are handed, and train."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from meshproof.contract import Batch, Evaluation, ReferenceTrajectory, Tree, leaves, nest

from .data import float32
from .optimizers import Optimizer, Values
from .rounding import Array, Rounded, contest, exact
from .training import train


class ModelTruth(ABC):
    """A `contract.Truth` of one model: subclasses are frozen dataclasses that describe the model and its loss."""

    optimizer: Optimizer
    seed: int

    def in_bfloat16(self) -> ModelTruth:
        """The same mathematics, computed in bfloat16 from float32 parameters to a float32 loss; not every model can."""
        raise NotImplementedError(f"{type(self).__name__} does not compute in bfloat16: mix a model whose truth does")

    def in_tensorfloat32(self) -> ModelTruth:
        """The same mathematics, whose products may drop digits of what they multiply; not every model can."""
        raise NotImplementedError(
            f"{type(self).__name__} does not compute in TensorFloat-32: take a model whose truth does"
        )

    @abstractmethod
    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        """The global shape of every parameter by path, in the model's order."""

    @abstractmethod
    def draw(self, path: str, shape: tuple[int, ...]) -> Array:
        """The start value of one parameter, before it is rounded to float32."""

    @abstractmethod
    def batches(self, count: int, batch: int) -> tuple[Batch, ...]:
        """``count`` different host batches of ``batch`` examples, the same at every call."""

    @abstractmethod
    def check_batch(self, batch: Batch, number: int) -> None:
        """Raises ``ValueError`` naming both shapes where a field is not what the model and the loss take."""

    @abstractmethod
    def loss_and_gradients(
        self, parameters: Values, batch: Mapping[str, np.ndarray], lean: float = 0
    ) -> tuple[Rounded, dict[str, Rounded]]:
        """The scalar mean loss and every parameter's gradient, in the parameters' order; ``lean`` as in `rounding`."""

    def initial_auxiliary(self) -> dict[str, Rounded]:
        """What the model keeps beside parameters, before the first step; most models keep nothing."""
        return {}

    def follow(self, auxiliary: Values, parameters: Values, batch: Mapping[str, np.ndarray], lean: float) -> Values:
        """The auxiliary state after a step from ``parameters`` on a batch; ``lean`` as in `rounding`."""
        return auxiliary

    def logits(self, parameters: Values, x: np.ndarray) -> Rounded:
        """The outputs (B, C) or (B, T, V) for a batch of inputs, for models that classify."""
        raise NotImplementedError(f"{type(self).__name__} has no logits to evaluate: evaluate a model that classifies")

    def initial_parameters(self) -> Tree:
        """Canonical float32 start values, each leaf from its own stream."""
        return nest({path: float32(self.draw(path, shape)) for path, shape in self.parameter_shapes().items()})

    def train(self, parameters: Tree, batches: Sequence[Batch]) -> ReferenceTrajectory:
        """One step per batch from ``parameters``: float64 values, and the standard deviation of their float32 rounding.

        Raises ``ValueError`` where a leaf or a field is missing, not float32 or of another shape than the model has.
        """
        if not batches:
            raise ValueError("no batches: the truth trains one step per batch and needs at least one")
        for number, batch in enumerate(batches):
            self.check_batch(batch, number)
        return train(self, self.checked_parameters(parameters), batches)

    def evaluate(self, parameters: Tree, batches: Sequence[Batch]) -> Evaluation:
        """The totals over batches of any sizes, for models that classify examples or tokens. Raises as `train` does."""
        values = {path: exact(value) for path, value in self.checked_parameters(parameters).items()}
        return self.counted(
            batches, lambda batch: (self.loss_and_gradients(values, batch)[0], self.logits(values, batch["x"]))
        )

    def counted(self, batches: Sequence[Batch], outputs: Callable[[Batch], tuple[Rounded, Rounded]]) -> Evaluation:
        """The totals of the mean loss and the logits of each batch."""
        loss, correct, doubtful, count = exact(0), 0, 0, 0
        for number, batch in enumerate(batches):
            self.check_batch(batch, number)
            mean, logits_BxC = outputs(batch)
            likeliest_BxC, chance_BxC = contest(logits_BxC)
            loss = loss + mean * np.size(batch["y"])
            correct += int((likeliest_BxC.argmax(-1) == batch["y"]).sum())
            doubtful += int(chance_BxC.any(-1).sum())
            count += np.size(batch["y"])
        return Evaluation(float(loss.value), float(np.sqrt(loss.variance)), correct, doubtful, count)

    def checked_parameters(self, parameters: Tree) -> dict[str, np.ndarray]:
        """The flat parameters in the model's order."""
        given = {path: np.asarray(leaf) for path, leaf in leaves(parameters)}
        expected = self.parameter_shapes()
        if given.keys() != expected.keys():
            raise ValueError(
                f"parameters of {self}: missing {sorted(expected.keys() - given.keys())}, "
                f"unexpected {sorted(given.keys() - expected.keys())}"
            )
        for path, shape in expected.items():
            check_array(path, given[path], shape)
        return {path: given[path] for path in expected}


def check_array(name: str, array: np.ndarray, shape: tuple[int, ...]) -> None:
    """Raises ``ValueError`` unless the array is float32, which the truth takes as exact, and of that shape."""
    if array.shape != shape:
        raise ValueError(f"{name} has shape {array.shape}, expected {shape}")
    if array.dtype != np.float32:
        raise ValueError(f"{name} is {array.dtype}, expected float32: the truth takes its inputs as exact in float32")


def check_labels(name: str, labels: np.ndarray, shape: tuple[int, ...], classes: int) -> None:
    """Raises ``ValueError`` unless these are integers of that shape from 0 to ``classes − 1``."""
    if labels.shape != shape or not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(f"{name} is {labels.dtype}{labels.shape}, not integer labels of shape {shape}")
    if labels.min() < 0 or labels.max() >= classes:
        raise ValueError(f"{name} has labels from {labels.min()} to {labels.max()}, outside 0…{classes - 1}")
