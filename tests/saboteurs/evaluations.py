"""Faults of steps that compute gradients more than once. The budgets list what is seen to move."""

from typing import Any

import jax
import numpy as np
from jax.sharding import PartitionSpec as P

from tests.healthy.evaluations import Inner, Sharpness
from tests.healthy.manual import DataParallel, Manual
from tests.saboteurs.planting import plant_stranger

LOOSE = {"check_vma": False}


class Once(Sharpness):
    """Says that it computes gradients twice, and reduces those at the worst neighbour alone."""

    name = "worst_neighbour_of_each_device"
    step_moves = DataParallel.step_moves

    def update(self, state: Any, batch: Any) -> Any:
        """Each device goes along its own gradient."""
        local = jax.shard_map(self.local_update, mesh=self.mesh, in_specs=(P(), self.rows), out_specs=P(), **LOOSE)
        return local(state, batch)

    def local_update(self, state: Any, batch: Any) -> Any:
        """One sum."""

        def loss(w: Any) -> Any:
            return super(Manual, self).mean_loss(w, batch)

        w = state["parameters"]
        value, first = jax.value_and_grad(loss)(w)
        gradients = jax.lax.pmean(jax.grad(loss)(self.neighbour(w, first)), "data")
        updates, optimizer = self.optimizer.update(gradients, state["optimizer"], w)
        parameters = jax.tree.map(lambda leaf, by: leaf + by, w, updates)
        return {"parameters": parameters, "optimizer": optimizer}, {"loss": self.mean(value)}


class ReducesAgain(Sharpness):
    """The mean of what is the mean already, where the worst neighbour is sought."""

    name = "sharpness_reduced_thrice"
    step_moves = (*Sharpness.step_moves, DataParallel.step_moves[0])

    def neighbour(self, w: Any, gradients: Any) -> Any:
        """Along that."""
        again = jax.shard_map(lambda g: jax.lax.pmean(g, "data"), mesh=self.mesh, in_specs=P(), out_specs=P(), **LOOSE)
        return super().neighbour(w, again(gradients))


class Undeclared(Inner):
    """As many reductions as updates, and the contract does not say that one call has several."""

    name = "inner_updates_undeclared"
    promises: dict[str, Any] = {}  # noqa: RUF012 - as the zoo declares it


class SameRows(Inner):
    """Every device has the same rows of each of the four batches."""

    name = "inner_updates_of_the_same_rows"

    def batch(self, draws: Any) -> Any:
        """Those of the first."""
        return jax.tree.map(lambda rows: np.tile(rows[:, :8], (1, 8, 1)), super().batch(draws))


plant_stranger(Once(), "COM-2", "NUM-3")
plant_stranger(ReducesAgain(), "COM-2")
plant_stranger(Undeclared(), "COM-2")
plant_stranger(SameRows(), "ERR-2")
