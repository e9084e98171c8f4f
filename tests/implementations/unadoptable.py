"""Trainers that `meshproof adopt` refuses, and one whose step has faults that it asks about."""

from types import MappingProxyType

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

from tests.implementations.unadopted import Dropping, PlainLoop, place, plain_step, squared


class OnNoMesh:
    """One device, and no word of a mesh."""

    def __init__(self):
        self.state = {"w": jnp.zeros(4)}
        self.batch = {"x": np.ones((8, 4), np.float32)}
        self.train_step = jax.jit(lambda state, batch: (state, {"loss": jnp.sum(state["w"] * batch["x"])}))


class HidesItsStep(PlainLoop):
    """A method that decides in Python what to run."""

    def __init__(self):
        super().__init__()
        jitted = self.train_step
        self.train_step = lambda state, batch: jitted(state, batch)


class RaisesWhenRead(PlainLoop):
    """Its step is a property that reads what is not there."""

    @property
    def train_step(self):
        """By a slip."""
        return self.stepp

    @train_step.setter
    def train_step(self, step):
        self.step = step


class GivesBatchesOnce(PlainLoop):
    """A loader that is used up."""

    def __init__(self):
        super().__init__()
        self.batches = iter([self.batch] * 9)


class NamesNoParameter(PlainLoop):
    """Says how what it does not have is computed with."""

    computed = MappingProxyType({"experts": P("data")})


class DropsInItsLoss(Dropping):
    """Its forward pass draws from the state's own streams, which go on."""

    def loss(self, state, batch):
        """Of the model itself."""
        model, _ = state
        return squared(model(batch["x"]), batch)


class SaysASpecAlone(PlainLoop):
    """And not of which parameters."""

    computed = P("data")


class TakesAKey(PlainLoop):
    """A step of three arguments."""

    def __init__(self):
        super().__init__()
        self.train_step = lambda state, batch, key: (state, {})


class Draws(PlainLoop):
    """Scales every batch by how many it has seen."""

    def __init__(self):
        super().__init__()
        self.seen, jitted = 0, self.train_step

        class Step:
            lower = jitted.lower

            def __call__(step, state, batch):  # noqa: N805
                self.seen += 1
                return jitted(state, jax.tree.map(lambda field: field * self.seen, batch))

        self.train_step = Step()


class RaisesInInit(PlainLoop):
    """Has no weights."""

    def init(self, key):
        """Never."""
        raise RuntimeError("no weights here")


class NeedsMore(PlainLoop):
    """Cannot be made without an argument."""

    def __init__(self, config):
        super().__init__()


class Lacking:
    """Has a step alone."""

    train_step = staticmethod(jax.jit(plain_step))


class KeepsAndReplicates(PlainLoop):
    """Does not donate; every device computes on the whole batch."""

    def __init__(self):
        super().__init__()
        self.batch = place(dict(self.batch))
        self.train_step = jax.jit(plain_step)
