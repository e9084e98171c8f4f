"""Faults of a loss that is taken of a mean over all rows."""

from typing import Any

from tests.healthy.recipes import Diverse
from tests.healthy.trainer import LOSS, moves
from tests.saboteurs.planting import plant_stranger


class OwnEntropies(Diverse):
    """The mean of entropies, each of one device's rows, where the entropy of the mean belongs."""

    name = "entropies_of_each_device"
    forward_moves = (LOSS,)
    step_moves = (moves("all-reduce", "gradients", *Diverse.shapes.values()), LOSS)

    def mean(self, chances: Any) -> Any:
        """Of its own."""
        return chances


plant_stranger(OwnEntropies(), "NUM-2", "NUM-4")
