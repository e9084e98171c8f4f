"""Faults of what is taken of all rows together, or of all parameters, and of what a loader keeps narrow."""

from typing import Any

import jax
import jax.numpy as jnp

from tests.healthy.recipes import Diverse, Normalised, Prodigy, StoresNarrow
from tests.healthy.together import Decorrelated
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


class GainOfAFew(Normalised):
    """The gradient of a gain is that of the rows that one device has."""

    name = "gain_of_one_device"

    def value_and_gradients(self, w: Any, batch: Any) -> Any:
        """All else is of all rows."""
        value, gradients = super().value_and_gradients(w, batch)
        few = {field: rows[: len(rows) // self.mesh.size] for field, rows in batch.items()}
        return value, gradients | {"gain": jax.grad(self.mean_loss)(w, few)["gain"]}


class ProductOfNarrow(StoresNarrow):
    """What a loader keeps in bfloat16 is multiplied in it."""

    name = "narrow_rows_multiplied"

    def wide(self, rows: Any) -> Any:
        """By the identity."""
        return (rows @ jnp.eye(rows.shape[1], dtype=rows.dtype)).astype(jnp.float32)


class OwnViews(Decorrelated):
    """Features are normalised over the rows of each device."""

    name = "views_normalised_by_device"
    forward_moves = (moves("all-reduce", "metrics", (8, 8)),)
    step_moves = (moves("all-reduce", "gradients", *Decorrelated.shapes.values()), *forward_moves)

    def normalised(self, z: Any) -> Any:
        """By groups of as many."""
        groups = z.reshape(self.mesh.size, -1, *z.shape[1:])
        apart = groups - groups.mean(1, keepdims=True)
        return (apart * jax.lax.rsqrt(groups.var(1, keepdims=True) + 1e-5)).reshape(z.shape)


class TwiceAsFar(Prodigy):
    """The sum behind the distance is twice what it is, on the mesh."""

    name = "distance_of_the_mesh"

    def update(self, state: Any, batch: Any) -> Any:
        """After each step."""
        new, metrics = super().update(state, batch)
        if self.mesh.size > 1:
            kept = new["optimizer"]
            new["optimizer"] = kept._replace(numerator_weighted=2 * kept.numerator_weighted)
        return new, metrics


plant_stranger(OwnEntropies(), "NUM-2", "NUM-4")
plant_stranger(OwnViews(), "NUM-2", "NUM-4")
plant_stranger(TwiceAsFar(), "NUM-3")
plant_stranger(GainOfAFew(), "NUM-2", "NUM-3")
plant_stranger(ProductOfNarrow(), "MIX-2")
