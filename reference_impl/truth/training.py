"""Training in float64, and how float32 errors grow from one step to the next.

Within a step errors are propagated as independent (`rounding`). From step to step they are not: the errors of one
step's parameters meet every example of the next, an unstable direction amplifies them together, and an error that many
elements share, from a scalar or from the flip of one ReLU, moves them all one way. So the truth trains again, `DRAWS`
times, from the first step's result with a drawn error in every element, with every ReLU leaning by the deviation of its
flip and with the optimizer's shared errors, and adds the mean square of the differences.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np

from meshproof.contract import Batch, ReferenceTrajectory, Step, Trajectory

from .data import draw_bell
from .optimizers import Optimizer, Values
from .rounding import Array, Rounded, exact

DRAWS = 2
"""Two, so that where one difference happens to pass through zero the other does not."""

History = list[Values]
"""The first step's gradients, then of each step the loss, the parameters, the optimizer's and the auxiliary state."""


class Trained(Protocol):
    """What is trained: as `judge.ModelTruth` has these."""

    optimizer: Optimizer

    def loss_and_gradients(
        self, parameters: Values, batch: Batch, lean: float = 0
    ) -> tuple[Rounded, dict[str, Rounded]]:
        """The mean loss and every parameter's gradient; ``lean`` is that of `rounding.gate`."""

    def initial_auxiliary(self) -> Values:
        """The auxiliary state before the first step."""

    def follow(self, auxiliary: Values, parameters: Values, batch: Batch, lean: float) -> Values:
        """That after a step from ``parameters``."""


def train(model: Trained, parameters: Mapping[str, np.ndarray], batches: Sequence[Batch]) -> ReferenceTrajectory:
    """One step per batch from flat float32 ``parameters``: float64 values, and their float32 standard deviations."""
    start = {path: exact(value) for path, value in parameters.items()}
    history = run(model, start, batches)
    drawn = [run(model, start, batches, draw) for draw in range(DRAWS)]
    widened: History = [
        {path: widen(x, [other[path].value for other in others]) for path, x in values.items()}
        for values, *others in zip(history, *drawn, strict=True)
    ]
    return ReferenceTrajectory(trajectory(widened, canonical_value), trajectory(widened, deviation))


def run(model: Trained, start: Values, batches: Sequence[Batch], draw: int | None = None) -> History:
    """One training. With a ``draw``, one off by a deviation: in the first step's results, and in every ReLU."""
    optimizer, lean = (model.optimizer, 0) if draw is None else (model.optimizer.perturbed(draw), 1)
    parameters, state, auxiliary = start, optimizer.init(start), model.initial_auxiliary()
    history: History = []
    for batch in batches:
        value, gradients = model.loss_and_gradients(parameters, batch, lean)
        auxiliary = model.follow(auxiliary, parameters, batch, lean)
        parameters, state = optimizer.update(parameters, state, gradients)
        if history:
            history += [{"loss": value}, parameters, state, auxiliary]
            continue
        history = [gradients, {"loss": value}, parameters, state, auxiliary]
        if draw is not None:
            parameters, state, auxiliary = (disturbed(part, draw) for part in (parameters, state, auxiliary))
    return history


def disturbed(values: Values, draw: int) -> dict[str, Rounded]:
    """Each element moved by a draw of its own error, unless that would change its sign (a second moment has none)."""
    moved = {
        path: x.value + np.sqrt(x.variance) * draw_bell(f"error/{path}", draw, x.value.shape)
        for path, x in values.items()
    }
    return {
        path: Rounded(np.where(x.value * moved[path] > 0, moved[path], x.value), x.variance)
        for path, x in values.items()
    }


def widen(x: Rounded, drawn: Sequence[Array]) -> Rounded:
    """The variance with the mean square of what the drawn trainings differ by."""
    return Rounded(x.value, x.variance + sum((other - x.value) ** 2 for other in drawn) / len(drawn))


def trajectory(history: History, part: Callable[[str, Rounded], np.ndarray]) -> Trajectory:
    """One part of all numbers, without the truth's own bookkeeping."""
    first, *rest = [{path: part(path, x) for path, x in one.items() if not path.startswith("_")} for one in history]
    steps = zip(*(rest[part::4] for part in range(4)), strict=True)
    return Trajectory(
        first,
        tuple(
            Step(float(loss["loss"]), parameters, state, auxiliary=auxiliary)
            for loss, parameters, state, auxiliary in steps
        ),
    )


def canonical_value(path: str, x: Rounded) -> np.ndarray:
    """The float64 value; a count is an int32."""
    return x.value.astype(np.int32) if path == "count" else x.value


def deviation(path: str, x: Rounded) -> np.ndarray:
    """The standard deviation that float32 rounding explains."""
    return np.asarray(np.sqrt(x.variance))
