"""What runs along of all examples: ``pytest suites/ --impl tests.healthy.quantiles``."""

import jax
import jax.numpy as jnp

from .recipes import DataParallel
from .trainer import WHOLE, Functional, moves

CLASSES = 8


class Quantile(DataParallel):
    """Three quantiles of the losses of rows, which all devices sort."""

    name = "running_quantile"
    promises = {"auxiliary": WHOLE}
    step_moves = (*DataParallel.step_moves, moves("all-gather", "statistics", (64,)))

    def start(self, parameters):
        """None is known."""
        return super().start(parameters) | {"auxiliary": {"quantiles": jnp.zeros(3, parameters["out"].dtype)}}

    def update(self, state, batch):
        """A tenth of the way."""
        kept = {key: value for key, value in state.items() if key != "auxiliary"}
        new, metrics = Functional.update(self, kept, batch)
        seen = jnp.quantile(self.ranked(state["parameters"], batch), jnp.array([0.1, 0.5, 0.9]))
        return new | {"auxiliary": {"quantiles": 0.9 * state["auxiliary"]["quantiles"] + 0.1 * seen}}, metrics

    def ranked(self, w, batch):
        """The loss of each row, before the step."""
        each = jnp.mean((jnp.tanh(batch["x"] @ w["hidden"]) @ w["out"] - batch["y"]) ** 2, axis=1)
        return jax.lax.with_sharding_constraint(each, self.on_mesh())

    def auxiliary(self, state):
        """By name."""
        return state["auxiliary"]


class Histogram(Quantile):
    """How often each class was seen, in whole numbers."""

    name = "counted_classes"
    step_moves = (*DataParallel.step_moves, moves("all-reduce", "statistics", (CLASSES,)))

    def batch(self, draws):
        """A class of each row."""
        return super().batch(draws) | {"class": draws.integers(0, CLASSES, size=64)}

    def start(self, parameters):
        """No one."""
        return super().start(parameters) | {"auxiliary": {"counts": jnp.zeros(CLASSES, jnp.int32)}}

    def update(self, state, batch):
        """Of all rows."""
        kept = {key: value for key, value in state.items() if key != "auxiliary"}
        new, metrics = Functional.update(self, kept, batch)
        seen = jax.nn.one_hot(self.counted(batch["class"]), CLASSES, dtype=jnp.int32).sum(0)
        return new | {"auxiliary": {"counts": state["auxiliary"]["counts"] + seen}}, metrics

    def counted(self, classes):
        """All of them."""
        return classes


def strategies():
    """Both."""
    return [Quantile(), Histogram()]
