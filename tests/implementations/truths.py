"""Truths that cannot judge, beside one that can."""

from dataclasses import dataclass, replace

import jax.numpy as jnp
import numpy as np

from meshproof.contract import ReferenceTrajectory, Step, Trajectory
from tests.implementations.minimal import Trainer


@dataclass
class Sound:
    """Gradient descent on one weight. As any dataclass that can change, it has no hash."""

    rate: float = 1e-3

    def initial_parameters(self):
        """Zero."""
        return {"w": np.zeros((), np.float32)}

    def train(self, parameters, batches):
        """Every deviation is a millionth of what it is of; a loss is an array, as NumPy may return it."""
        w, steps = np.float64(parameters["w"]), []
        for batch in batches:
            x, y = np.float64(batch["x"]), np.float64(batch["y"])
            loss, w = np.mean((w * x - y) ** 2), w - self.rate * np.mean(2 * (w * x - y) * x)
            steps.append(Step(np.asarray(loss), {"w": np.asarray(w)}, {}))
        rounding = [Step(1e-6 * step.loss, {"w": 1e-6 * abs(step.parameters["w"])}, {}) for step in steps]
        return ReferenceTrajectory(Trajectory({}, tuple(steps)), Trajectory({}, tuple(rounding)))


class Raises(Sound):
    """Knows nothing."""

    def train(self, parameters, batches):
        """Nothing."""
        raise ValueError("it knows no such batch")


class Flat(Sound):
    """Starts from a path for a key."""

    def initial_parameters(self):
        """As Haiku has it."""
        return {"net/~/w": np.zeros((), np.float32)}


class Narrow(Sound):
    """Returns other deviations of the weight than one of each element."""

    deviations = {"w": np.full(1, 1e-6)}  # noqa: RUF012

    def train(self, parameters, batches):
        """With these in place of the right ones."""
        reference = super().train(parameters, batches)
        steps = tuple(replace(step, parameters=self.deviations) for step in reference.rounding.steps)
        return replace(reference, rounding=Trajectory({}, steps))


class Forgets(Narrow):
    """Has none."""

    deviations = {}  # noqa: RUF012


class Short(Sound):
    """Leaves out the last batch."""

    def train(self, parameters, batches):
        """One step less."""
        return super().train(parameters, batches[:-1])


class Nothing(Sound):
    """Returns none."""

    def train(self, parameters, batches):
        """It forgot to."""


class Judged(Trainer):
    """The minimal trainer with a truth."""

    def __init__(self, name, truth):
        self.name, self.truth = name, truth

    def load(self, parameters):
        """The same weight."""
        [w] = parameters.values()
        return {"w": jnp.asarray(w)}

    def parameters(self, state):
        """All."""
        return state


def strategies():
    """One with each truth."""
    truths = {
        "raises": Raises(),
        "flat": Flat(),
        "narrow": Narrow(),
        "forgets": Forgets(),
        "short": Short(),
        "none": Nothing(),
        "sound": Sound(),
    }
    return [Judged(name, truth) for name, truth in truths.items()]
