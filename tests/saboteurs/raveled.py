"""Faults of ZeRO-1 that is written as one vector. The budgets list what is seen to move."""

from typing import Any

import jax

from tests.healthy.raveled import Raveled
from tests.healthy.trainer import moves
from tests.saboteurs.planting import plant_stranger


class GathersTwice(Raveled):
    """What was updated, and once more to look at it."""

    name = "raveled_gathered_twice"
    step_moves = (*Raveled.step_moves, moves("all-gather", "parameters", Raveled.padded))

    def gathered(self, part: Any) -> Any:
        """The same twice over."""
        first = super().gathered(part)
        return (first + super().gathered(jax.lax.optimization_barrier((part, first))[0])) / 2


class ReducesTwice(Raveled):
    """A whole sum before the scatter of what is then the same on every device."""

    name = "raveled_reduced_twice"
    step_moves = (moves("all-reduce", "gradients", Raveled.padded), *Raveled.step_moves)

    def scattered(self, vector: Any) -> Any:
        """The mean of means."""
        return super().scattered(jax.lax.pmean(vector, "data"))


class UpdatesTheNeighbours(Raveled):
    """Each device updates the part of the next one, by its own gradients."""

    name = "raveled_of_the_neighbour"

    def part(self, vector: Any, length: int) -> Any:
        """One further."""
        start = (jax.lax.axis_index("data") + 1) % self.mesh.size * length
        return jax.lax.dynamic_slice_in_dim(vector, start, length)


plant_stranger(GathersTwice(), "COM-3")
plant_stranger(ReducesTwice(), "COM-2")
plant_stranger(UpdatesTheNeighbours(), "NUM-3")
