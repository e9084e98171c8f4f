"""Steps that compute gradients more than once: ``pytest suites/ --impl tests.healthy.evaluations``."""

import jax
import jax.numpy as jnp
import optax
from jax.sharding import PartitionSpec as P

from .manual import DataParallel
from .trainer import LOSS, Functional, moves

REACH = 0.05
"""How far away the worst neighbour is sought."""


def often(budget, times):
    """The lines of a budget, so often."""
    return tuple(moves(line.operation, line.payload, (line.bytes // 4,), times=times) for line in budget)


class Sharpness(DataParallel):
    """Its gradient is that of the worst neighbour, which the first gradient points at."""

    name = "sharpness_aware"
    promises = {"explicit": True, "evaluations": 2}
    optimizer = optax.sgd(1e-2, momentum=0.9)
    step_moves = (moves("all-reduce", "gradients", *DataParallel.shapes.values(), times=2), LOSS)

    def update(self, state, batch):
        """Two gradients."""
        w = state["parameters"]
        value, first = self.value_and_gradients(w, batch)
        _, second = self.value_and_gradients(self.neighbour(w, first), batch)
        updates, optimizer = self.optimizer.update(second, state["optimizer"], w)
        return {"parameters": optax.apply_updates(w, updates), "optimizer": optimizer}, {"loss": value}

    def neighbour(self, w, gradients):
        """Along the gradient."""
        scale = REACH / optax.tree.norm(gradients)
        return jax.tree.map(lambda leaf, g: leaf + scale * g, w, gradients)


class Inner(Functional):
    """Four updates in one call, each on a batch of its own; the loss is that of the first."""

    name = "inner_updates"
    updates = 4
    rows = P(None, "data")
    promises = {"evaluations": updates}
    forward_moves = (LOSS,)
    step_moves = often((moves("all-reduce", "gradients", *Functional.shapes.values()), LOSS), updates)

    def batch(self, draws):
        """Four of 64 rows."""
        parts = [super(Inner, self).batch(draws) for _ in range(self.updates)]
        return jax.tree.map(lambda *of: jnp.stack(of).__array__(), *parts)

    def mean_loss(self, w, batch):
        """Before any of them, of the first batch."""
        return super().mean_loss(w, jax.tree.map(lambda rows: rows[0], batch) if batch["x"].ndim > 2 else batch)

    def update(self, state, batch):
        """One after the other."""
        state, metrics = jax.lax.scan(super().update, state, batch)
        return state, {"loss": metrics["loss"][0]}


def strategies():
    """Both."""
    return [Sharpness(), Inner()]
