"""Faults of losses that compare the examples of all devices, of trainers that bring no truth but themselves."""

from typing import Any

import jax

from tests.healthy.contrastive import EMBEDDED, Contrastive
from tests.healthy.trainer import moves
from tests.saboteurs.planting import plant_stranger

BACK = moves("reduce-scatter", "activations", *EMBEDDED)


class ConstantNegatives(Contrastive):
    """What is gathered is constant but for the device's own rows, as most code without a differentiable gather has it.

    The budgets list what is seen to move.
    """

    name = "constant_negatives"
    step_moves = tuple(line for line in Contrastive.step_moves if line != BACK)

    def gathered(self, part: Any) -> Any:
        """Own rows have their gradient."""
        every = jax.lax.stop_gradient(super().gathered(part))
        return jax.lax.dynamic_update_slice_in_dim(every, part, super().first_of(part), 1)


class MatchesFirstRows(Contrastive):
    """Every device looks for its rows among those of the first one."""

    name = "matches_first_rows"

    def first_of(self, part: Any) -> int:
        """Not this device's."""
        return 0


plant_stranger(ConstantNegatives(), "COM-1", "COM-2", "NUM-2")
plant_stranger(MatchesFirstRows(), "NUM-2", "NUM-4")
