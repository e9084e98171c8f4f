"""Accuracy beside the loss: the part of a step's batch that the parameters before the step classify rightly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from meshproof.contract import Batch, ReferenceTrajectory, Trajectory, Tree

from .mlp import MLPTruth
from .optimizers import Values
from .rounding import Rounded, contest, exact, rounding


@dataclass(frozen=True)
class ScoredMLPTruth(MLPTruth):
    """The truth of an MLP whose steps return a metric ``accuracy``, too."""

    def train(self, parameters: Tree, batches: Sequence[Batch]) -> ReferenceTrajectory:
        """As every truth, and the accuracy of each step."""
        trained = super().train(parameters, batches)
        before: list[Values] = [{path: exact(value) for path, value in self.checked_parameters(parameters).items()}]
        for value, deviation in zip(trained.value.steps, trained.rounding.steps, strict=True):
            before.append({path: Rounded(x, deviation.parameters[path] ** 2) for path, x in value.parameters.items()})
        scores = [self.accuracy(values, batch) for values, batch in zip(before, batches, strict=False)]
        return ReferenceTrajectory(
            scored(trained.value, [score.value for score in scores]),
            scored(trained.rounding, [np.sqrt(score.variance) for score in scores]),
        )

    def accuracy(self, parameters: Values, batch: Batch) -> Rounded:
        """The mean over the batch. It is off by the part of it that rounding may classify otherwise."""
        likeliest_BxC, chance_BxC = contest(self.logits(parameters, batch["x"]))
        right = np.asarray((likeliest_BxC.argmax(-1) == batch["y"]).mean())
        return Rounded(right, chance_BxC.any(-1).mean() ** 2 + rounding(right))


def scored(trajectory: Trajectory, scores: Sequence[np.ndarray]) -> Trajectory:
    """With one of these in each step's metrics."""
    steps = zip(trajectory.steps, scores, strict=True)
    return replace(trajectory, steps=tuple(replace(step, metrics={"accuracy": score}) for step, score in steps))
