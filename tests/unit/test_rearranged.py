"""What one device must be given to have the losses of a mesh."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from meshproof.observing.rearranged import rearranged

DRAWS = np.random.default_rng(0)
START = {"in": DRAWS.normal(size=(8, 3)), "out": DRAWS.normal(size=(8, 3)), "scale": DRAWS.normal(size=3)}
BATCHES = [{"x": DRAWS.normal(size=(8, 8)), "y": DRAWS.normal(size=8)} for _ in range(3)]
FIELDS, PARAMETERS = {"x": (4, 1), "y": (4,)}, {"in": (4, 1), "out": (4, 1), "scale": (1,)}


@dataclass
class Toy:
    """Its loss depends on the order of all; what it is given is moved before."""

    of_batch: dict = field(default_factory=dict)
    of_parameters: dict = field(default_factory=dict)
    further: float = 0.0

    def load(self, parameters):
        """As it is computed with."""
        return {name: self.of_parameters.get(name, lambda value: value)(value) for name, value in parameters.items()}

    def train_step(self, state, batch):
        """A loss, and no update."""
        x, y = (self.of_batch.get(name, lambda value: value)(batch[name]) for name in "xy")
        rows = ((x @ state["in"]) * state["scale"]) @ state["out"].T @ np.arange(8.0)
        return state, {"loss": np.mean((rows - y) ** 2) + self.further}


def rolled(by, dimension=0):
    """What moves."""
    return lambda value: np.roll(value, by, dimension)


def backwards(value):
    """Four shards of two in reverse order."""
    return value.reshape(4, 2, *value.shape[1:])[::-1].reshape(value.shape)


@pytest.mark.parametrize(
    ("mesh", "told"),
    [
        (Toy({"y": rolled(1)}), "x moved by -1 in dimension 0, against the rest of the batch"),
        (Toy({"y": rolled(2)}), "the shards of x moved by -1 in dimension 0, against the rest of the batch"),
        (Toy({"y": backwards}), "the shards of x in reverse order in dimension 0, against the rest of the batch"),
        (Toy(of_parameters={"out": backwards}), "the shards of out in reverse order in dimension 0"),
        (
            Toy(of_parameters=dict.fromkeys(("in", "out"), rolled(2))),
            "the shards of in and out moved by 1 in dimension 0",
        ),
        (Toy({"x": lambda x: -x}), None),
        (Toy({"y": rolled(1)}, further=1.0), None),
        (Toy(), None),
        (Toy(further=1e-9), None),
    ],
)
def test_what_explains_the_losses_is_told(mesh, told):
    """And nothing where nothing that is tried does, or where they are right."""
    assert rearranged(mesh, Toy(), START, BATCHES, FIELDS, PARAMETERS) == told
