"""Faults of preconditioners that have owners. The budgets list what is seen to move."""

from typing import Any

import jax

from tests.healthy.owners import LAYERS, Owned
from tests.healthy.trainer import moves
from tests.saboteurs.planting import plant_stranger


class GathersTwice(Owned):
    """Once for each of two products, and the compiler must not see that they are the same."""

    name = "preconditioners_gathered_twice"
    step_moves = (*Owned.step_moves, moves("all-gather", "statistics", LAYERS))

    def gathered(self, products: Any) -> Any:
        """Half of each."""
        first = super().gathered(products)
        return (first + super().gathered(jax.lax.optimization_barrier((products, first))[0])) / 2


class OwnsTheFirst(Owned):
    """Every device keeps the products of the first layer in place of its own."""

    name = "preconditioners_of_the_first"

    def own(self, of: Any, count: int) -> Any:
        """The same on each."""
        return of[:count]


plant_stranger(GathersTwice(), "COM-2")
plant_stranger(OwnsTheFirst(), "NUM-3")
