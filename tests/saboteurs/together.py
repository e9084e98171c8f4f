"""Faults of losses that take examples of several devices together, where a trainer brings no truth but itself."""

from dataclasses import replace
from typing import Any

import jax

from tests.healthy.recipes import DataParallel
from tests.healthy.together import EMBEDDED, Contrastive, ManifoldMixup, Mixup
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


class MixesActivations(ManifoldMixup):
    """What it mixes of a hidden layer is budgeted as examples, which have no gradient."""

    name, model = "mixes_activations", "mixed_activations_mlp"
    forward_moves, step_moves = (
        tuple(replace(line, payload="examples") if line.payload == "activations" else line for line in budget)
        for budget in (ManifoldMixup.forward_moves, ManifoldMixup.step_moves)
    )


class MixesOwnRows(Mixup):
    """Takes the other row's number for one of the device's own."""

    name, model = "mixes_own_rows", "own_rows_mlp"
    forward_moves, step_moves = DataParallel.forward_moves, DataParallel.step_moves

    def mixed(self, rows: Any, other: Any) -> Any:
        """Of eight."""
        of = jax.shard_map(
            lambda rows, other: Mixup.mixed(self, rows, other % len(rows)),
            mesh=self.mesh,
            in_specs=self.rows,
            out_specs=self.rows,
        )
        return of(rows, other)


plant_stranger(MixesActivations(), "COM-1", "COM-2")
plant_stranger(MixesOwnRows(), "NUM-2", "NUM-4")
plant_stranger(ConstantNegatives(), "COM-1", "COM-2", "NUM-2")
plant_stranger(MatchesFirstRows(), "NUM-2", "NUM-4")
