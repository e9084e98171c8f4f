"""Faults in values that are no numbers yet, and values that are none any more."""

from typing import Any

import jax.numpy as jnp
from optax import contrib

from tests.healthy.plateaus import Plateau
from tests.saboteurs.planting import plant_stranger


class ToldTheSum(Plateau):
    """What lowers the rate is told the loss of all devices added up."""

    name = "plateau_told_the_sum"

    def told(self, value: Any, batch: Any) -> Any:
        """Of the mesh alone."""
        return value * self.mesh.size


class Overflows(Plateau):
    """The average of the losses is beyond all numbers from the first step on, on one device too."""

    name = "average_beyond_all_numbers"

    def update(self, state: Any, batch: Any) -> Any:
        """Nothing else is."""
        new, metrics = super().update(state, batch)
        beyond = new["auxiliary"]._replace(avg_value=jnp.full_like(metrics["loss"], jnp.inf))
        return new | {"auxiliary": beyond}, metrics


class CountsItsOwn(Plateau):
    """The accuracy of a class is of the rows that the first device has."""

    name = "class_accuracy_of_one_device"

    def counted(self, classes: Any) -> Any:
        """Of a few rows, so that other classes have none."""
        return classes[: len(classes) // self.mesh.size].sum(0)


class NeverReached(Plateau):
    """The best loss stays at infinity on the mesh, where one device has found one."""

    name = "best_loss_never_reached"
    falls = contrib.reduce_on_plateau()

    def update(self, state: Any, batch: Any) -> Any:
        """As it was."""
        new, metrics = super().update(state, batch)
        if self.mesh.size > 1:
            new["auxiliary"] = new["auxiliary"]._replace(best_value=state["auxiliary"].best_value)
        return new, metrics


plant_stranger(ToldTheSum(), "NUM-3")
plant_stranger(Overflows(), "NUM-10")
plant_stranger(CountsItsOwn(), "NUM-4")
plant_stranger(NeverReached(), "NUM-3", "AUX-1")
