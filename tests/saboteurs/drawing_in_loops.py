"""Faults of trainers that draw in a loop, over microbatches or over layers."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from tests.healthy.idioms import Trainer
from tests.saboteurs.drawing import Drops, drop, drops
from tests.saboteurs.planting import plant_stranger


class Accumulates(Drops):
    """In four microbatches, each with a key of its own, which has no type."""

    name = "healthy_accumulates"
    microbatches_share = False

    def start(self, parameters: Any) -> Any:
        """With a key of older code."""
        return super().start(parameters) | {"key": jax.random.PRNGKey(7)}

    def both(self, state: Any, batch: Any) -> Any:
        """Loss and gradients."""

        def local(w: Any, key: Any, batch: Any) -> Any:
            own = jax.random.fold_in(key, jax.lax.axis_index("data"))

            def one(total: Any, given: Any) -> Any:
                number, rows = given
                drawn = own if self.microbatches_share else jax.random.fold_in(own, number)
                seen = jax.value_and_grad(self.dropped)(w, rows, drawn)
                return jax.tree.map(lambda one, other: one + other / 4, total, seen), None

            rows = jax.tree.map(lambda field: field.reshape(4, -1, *field.shape[1:]), batch)
            total, _ = jax.lax.scan(one, (0.0, jax.tree.map(jnp.zeros_like, w)), (jnp.arange(4), rows))
            return jax.lax.pmean(total, "data")

        specs = {"in_specs": (P(), P(), P("data")), "out_specs": P(), "check_vma": False}
        return jax.shard_map(local, mesh=self.mesh, **specs)(state["parameters"], state["key"], batch)


class MakesItsKeyAnew(Accumulates):
    """By ``fold_in`` of one number, as Flax's ``make_rng`` does in each application of a module."""

    def dropped(self, w: Any, batch: Any, key: Any) -> Any:
        """The loss of a shard."""
        return super().dropped(w, batch, jax.random.fold_in(key, 3))


class LeavesOutFeatures(Accumulates):
    """Of all rows of a microbatch the same: rows may change places in it."""

    name = "healthy_microbatches_leave_out_features"

    def dropped(self, w: Any, batch: Any, key: Any) -> Any:
        """The loss of a shard."""
        kept = drop(key, jnp.ones((1, w["hidden"].shape[1])), self.kept)
        return jnp.mean((jnp.tanh(batch["x"] @ w["hidden"]) * kept @ w["out"] - batch["y"]) ** 2)


class SharesMasksInPairs(Drops):
    """Two views of one example are neighbours, and have one mask: they may change places."""

    name = "healthy_pairs_share_a_mask"

    def dropped(self, w: Any, batch: Any, key: Any) -> Any:
        """The loss of a shard."""
        hidden = jnp.tanh(batch["x"] @ w["hidden"])
        kept = jnp.repeat(drop(key, jnp.ones((len(hidden) // 2, hidden.shape[1])), self.kept), 2, 0)
        return jnp.mean((hidden * kept @ w["out"] - batch["y"]) ** 2)


class StartsWithZeros(MakesItsKeyAnew):
    """Its last layer does, as a transformer's head does: the first loss knows no draw."""

    name = "healthy_starts_with_zeros"

    def start(self, parameters: Any) -> Any:
        """With a head of zeros."""
        return super().start(parameters | {"out": jnp.zeros_like(parameters["out"])})


class AccumulatesByItsCount(Accumulates):
    """A key is made in each step, from its count."""

    name = "healthy_accumulates_by_its_count"

    def both(self, state: Any, batch: Any) -> Any:
        """Loss and gradients."""
        return super().both(state | {"key": jax.random.PRNGKey(state["optimizer"][0].count)}, batch)

    def start(self, parameters: Any) -> Any:
        """With no key."""
        return Trainer.start(self, parameters)

    def step(self, state: Any, batch: Any) -> Any:
        """One update."""
        new, metrics = super().step(state | {"key": jax.random.PRNGKey(0)}, batch)
        return {name: new[name] for name in state}, metrics


class Deals(Drops):
    """Four microbatches under ``jit``, to each of which every device deals rows of its own."""

    name = "healthy_deals"
    fields_apart = False

    def both(self, state: Any, batch: Any) -> Any:
        """Loss and gradients."""
        dealt = {name: self.dealt(rows, self.mesh.size) for name, rows in batch.items()}
        if self.fields_apart:
            dealt["y"] = self.dealt(batch["y"], 1)

        def one(total: Any, given: Any) -> Any:
            number, rows = given
            seen = jax.value_and_grad(self.dropped)(state["parameters"], rows, jax.random.fold_in(state["key"], number))
            return jax.tree.map(lambda one, other: one + other / 4, total, seen), None

        zeros = jax.tree.map(jnp.zeros_like, state["parameters"])
        return jax.lax.scan(one, (0.0, zeros), (jnp.arange(4), dealt))[0]

    def dealt(self, rows: Any, devices: int) -> Any:
        """A quarter of the rows of each of so many."""
        of = rows.reshape(devices, 4, -1, *rows.shape[1:]).swapaxes(0, 1).reshape(4, -1, *rows.shape[1:])
        return jax.lax.with_sharding_constraint(of, NamedSharding(self.mesh, P(None, "data")))


class ScansLayers(Drops):
    """Three layers of one form in a scan, each with a key of its own."""

    name = "healthy_scans_layers"

    def __init__(self, devices: int = 8) -> None:
        super().__init__(devices)
        self.loss = jax.jit(lambda state, batch: self.whole(state, batch))

    def whole(self, state: Any, batch: Any) -> Any:
        """The loss without its gradients."""

        def local(w: Any, key: Any, batch: Any) -> Any:
            own = jax.random.fold_in(key, jax.lax.axis_index("data"))
            return jax.lax.pmean(self.dropped(w, batch, own), "data")

        specs = {"in_specs": (P(), P(), P("data")), "out_specs": P(), "check_vma": False}
        return jax.shard_map(local, mesh=self.mesh, **specs)(state["parameters"], state["key"], batch)

    def dropped(self, w: Any, batch: Any, key: Any) -> Any:
        """The loss of a shard."""
        layers = jax.random.split(key, 3)

        def layer(hidden: Any, own: Any) -> Any:
            return drop(key if self.layers_share else own, jnp.tanh(hidden), self.kept), None

        hidden, _ = jax.lax.scan(self.kept_as(layer), batch["x"] @ w["hidden"], layers)
        return jnp.mean((hidden @ w["out"] - batch["y"]) ** 2)

    def kept_as(self, layer: Any) -> Any:
        """With all that its backward pass needs."""
        return layer


class RecomputesLayers(ScansLayers):
    """Each layer is computed again in the backward pass; a key is split for a step, and again, alike, for the next."""

    name = "healthy_recomputes_layers"

    def kept_as(self, layer: Any) -> Any:
        """With nothing."""
        return jax.checkpoint(layer)

    def both(self, state: Any, batch: Any) -> Any:
        """By the second part."""
        return super().both(state | {"key": jax.random.split(state["key"])[1]}, batch)

    def whole(self, state: Any, batch: Any) -> Any:
        """By the same."""
        return super().whole(state | {"key": jax.random.split(state["key"])[1]}, batch)

    def step(self, state: Any, batch: Any) -> Any:
        """The first part is kept."""
        new, metrics = super().step(state, batch)
        return new | {"key": jax.random.split(state["key"])[0]}, metrics


class DropsAgain(RecomputesLayers):
    """What goes into the layers is dropped by the key of the first of them, which is split once more, alike."""

    name = "drops_by_a_key_of_recomputed_layers"

    def dropped(self, w: Any, batch: Any, key: Any) -> Any:
        """The loss of a shard."""
        first = jax.random.split(key, 3)[0]
        return super().dropped(w, batch | {"x": drop(first, batch["x"], self.kept)}, key)


plant_stranger(Accumulates())
plant_stranger(drops("drops_alike_in_microbatches", Accumulates, microbatches_share=True), "NUM-9")
plant_stranger(drops("makes_one_key_in_microbatches", MakesItsKeyAnew, microbatches_share=True), "NUM-9")
plant_stranger(LeavesOutFeatures())
plant_stranger(SharesMasksInPairs())
plant_stranger(StartsWithZeros())
plant_stranger(drops("makes_one_key_behind_zeros", StartsWithZeros, microbatches_share=True), "NUM-9")
plant_stranger(AccumulatesByItsCount())
plant_stranger(drops("drops_alike_by_its_count", AccumulatesByItsCount, microbatches_share=True), "NUM-9")
plant_stranger(Deals())
plant_stranger(drops("deals_labels_otherwise", Deals, fields_apart=True), "NUM-2", "NUM-3")
plant_stranger(ScansLayers())
plant_stranger(drops("drops_alike_in_scanned_layers", ScansLayers, layers_share=True), "NUM-9")
plant_stranger(RecomputesLayers())
plant_stranger(drops("drops_alike_in_recomputed_layers", RecomputesLayers, layers_share=True), "NUM-9")
plant_stranger(DropsAgain(), "NUM-9")
