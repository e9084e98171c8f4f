"""Faults of what is taken of all rows together, or of all parameters, and of what a loader keeps narrow."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from tests.healthy.recipes import Diverse, Prodigy, StoresNarrow
from tests.healthy.reparametrised import Normalised, Perturbed
from tests.healthy.sharded import FSDP, UnitClip
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


def unreduced(trainer: Any, kept: str, w: Any, batch: Any) -> Any:
    """The loss and its gradients by hand, and unchecked: of one parameter each device keeps its own."""

    def local(w: Any, batch: Any) -> Any:
        value, own = jax.value_and_grad(trainer.mean_loss)(w, batch)
        value, shared = jax.lax.pmean((value, {name: of for name, of in own.items() if name != kept}), "data")
        return value, shared | {kept: own[kept]}

    parts = {"mesh": trainer.mesh, "in_specs": (P(), trainer.rows), "out_specs": P()}
    return jax.shard_map(local, **parts, check_vma=False)(w, batch)


class GainOfAFew(Normalised):
    """The gradient of a gain is that of the rows that one device has."""

    name = "gain_of_one_device"

    def value_and_gradients(self, w: Any, batch: Any) -> Any:
        """All else is of all rows."""
        value, gradients = super().value_and_gradients(w, batch)
        few = {field: rows[: len(rows) // self.mesh.size] for field, rows in batch.items()}
        return value, gradients | {"gain": jax.grad(self.mean_loss)(w, few)["gain"]}


class DeviationOfAFew(Perturbed):
    """The gradient of a deviation is that of the rows that one device has."""

    name = "deviation_of_one_device"

    def value_and_gradients(self, w: Any, batch: Any) -> Any:
        """The budget lists no more than the mean's."""
        return unreduced(self, "deviation", w, batch)


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


class LeavesOneOut(Normalised):
    """Nobody reduces the gradient of a vector, and the budget does not list it."""

    name = "vector_reduced_by_nobody"

    def value_and_gradients(self, w: Any, batch: Any) -> Any:
        """Each device keeps its own."""
        return unreduced(self, "gain", w, batch)


class SumsShards(UnitClip):
    """The mean of all devices' shards in place of each one's own, budgeted as norms of units would be."""

    name = "shards_summed_as_metrics"
    optimizer = FSDP.optimizer
    step_moves = (*FSDP.step_moves, moves("all-reduce", "metrics", (2, 32), (4, 8)))

    def value_and_gradients(self, w: Any, batch: Any) -> Any:
        """Once they are scattered."""
        value, gradients = super().value_and_gradients(w, batch)
        parts = {"mesh": self.mesh, "in_specs": P("data"), "out_specs": P("data")}
        return value, jax.shard_map(lambda g: jax.lax.pmean(g, "data"), **parts, check_vma=False)(gradients)


plant_stranger(OwnEntropies(), "NUM-2", "NUM-4")
plant_stranger(OwnViews(), "NUM-2", "NUM-4")
plant_stranger(TwiceAsFar(), "NUM-3")
plant_stranger(GainOfAFew(), "NUM-2", "NUM-3")
plant_stranger(ProductOfNarrow(), "MIX-2")
plant_stranger(LeavesOneOut(), "NUM-2", "NUM-3", "NUM-6")
plant_stranger(SumsShards(), "NUM-2")
plant_stranger(DeviationOfAFew(), "NUM-2", "NUM-3", "NUM-6")
