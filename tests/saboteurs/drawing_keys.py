"""Faults of keys that nobody's loss shows: they come again in another step, or on a device of the same layer."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from meshproof.contract import Contract
from tests.saboteurs.drawing import Drops, DropsPaths, drop, drops
from tests.saboteurs.planting import plant_stranger


class Adds(Drops):
    """The key of a device is made of its count and the device's number."""

    name = "healthy_folds_twice"
    moves_on = False
    adds = False
    last_stays = False

    def both(self, state: Any, batch: Any) -> Any:
        """Loss and gradients."""

        def local(w: Any, key: Any, count: Any, batch: Any) -> Any:
            device = jax.lax.axis_index("data")
            count = jnp.where(self.last_stays & (device == 7), 0, count)
            own = jax.random.fold_in(key, count + device if self.adds else count)
            own = own if self.adds else jax.random.fold_in(own, device)
            return jax.lax.pmean(jax.value_and_grad(self.dropped)(w, batch, own), "data")

        specs = {"in_specs": (P(), P(), P(), P("data")), "out_specs": P(), "check_vma": False}
        count = state["optimizer"][0].count
        return jax.shard_map(local, mesh=self.mesh, **specs)(state["parameters"], state["key"], count, batch)


class DropsRows(Drops):
    """Hidden units, and whole rows beside them."""

    name = "healthy_drops_rows"
    rows_alike = False

    def both(self, state: Any, batch: Any) -> Any:
        """Loss and gradients."""

        def local(w: Any, key: Any, batch: Any) -> Any:
            units, rows = jax.random.split(key)
            device = jax.lax.axis_index("data")
            rows = rows if self.rows_alike else jax.random.fold_in(rows, device)

            def loss(w: Any) -> Any:
                hidden = drop(jax.random.fold_in(units, device), jnp.tanh(batch["x"] @ w["hidden"]), self.kept)
                errors = jnp.mean((hidden @ w["out"] - batch["y"]) ** 2, axis=1)
                return jnp.mean(drop(rows, errors, self.kept))

            return jax.lax.pmean(jax.value_and_grad(loss)(w), "data")

        specs = {"in_specs": (P(), P(), P("data")), "out_specs": P(), "check_vma": False}
        return jax.shard_map(local, mesh=self.mesh, **specs)(state["parameters"], state["key"], batch)


class AddsLayers(Drops):
    """Global draws; the key of a layer is made of the count and the layer's number."""

    name = "healthy_folds_layers"
    moves_on = False
    adds = False

    def both(self, state: Any, batch: Any) -> Any:
        """Loss and gradients."""
        count = state["optimizer"][0].count

        def key(layer: int) -> Any:
            if self.adds:
                return jax.random.fold_in(state["key"], count + layer)
            return jax.random.fold_in(jax.random.fold_in(state["key"], count), layer)

        def loss(w: Any) -> Any:
            hidden = drop(key(0), jnp.tanh(batch["x"] @ w["hidden"]), self.kept)
            return jnp.mean((drop(key(1), hidden @ w["out"], self.kept) - batch["y"]) ** 2)

        return jax.value_and_grad(loss)(state["parameters"])


SPLIT = {"hidden": P(None, "model"), "out": P("model")}


class Tensor(Drops):
    """A hidden layer split over two devices, dropped in parts, and its result, which both have, dropped whole."""

    name = "healthy_drops_tensor"
    units_alike = False
    whole_alike = True
    drops_units = True

    def __init__(self, devices: int = 8) -> None:
        super().__init__(devices)
        self.mesh_axes = {"data": 4, "model": 2} if devices > 1 else {"data": 1, "model": 1}

    @property
    def mesh(self) -> Mesh:
        """Two axes."""
        sizes = tuple(self.mesh_axes.values())
        return Mesh(np.array(jax.devices()[: sizes[0] * sizes[1]]).reshape(sizes), ("data", "model"))

    @property
    def contract(self) -> Contract:
        """A budget left open."""
        kept = {"*hidden": P(None, "model"), "*out": P("model")}
        return Contract(kept, kept, kept | {"count": P()}, {"*": P("data")})

    def load(self, parameters: Any) -> Any:
        """Split as they are promised."""

        def of(path: Any, leaf: Any) -> NamedSharding:
            name = jax.tree_util.keystr(path[-1:], simple=True)
            return NamedSharding(self.mesh, SPLIT.get(name, P()))

        state = self.start(jax.tree.map(jnp.asarray, dict(parameters)))
        return jax.device_put(state, jax.tree_util.tree_map_with_path(of, state))

    def both(self, state: Any, batch: Any) -> Any:
        """Loss and gradients."""

        def local(w: Any, key: Any, batch: Any) -> Any:
            key = jax.random.fold_in(key, jax.lax.axis_index("data"))
            first, second = jax.random.split(key)
            unit = jax.lax.axis_index("model")
            first = first if self.units_alike else jax.random.fold_in(first, unit)
            hidden = jnp.tanh(batch["x"] @ w["hidden"])
            hidden = drop(first, hidden, self.kept) if self.drops_units else hidden
            out = jax.lax.psum(hidden @ w["out"], "model")
            seen = drop(second if self.whole_alike else jax.random.fold_in(second, unit), out, self.kept)
            mean = jax.lax.pmean(jnp.mean((seen - batch["y"]) ** 2), "data")
            return mean if self.whole_alike else jax.lax.pmean(mean, "model")

        def loss(w: Any) -> Any:
            specs = {"in_specs": (SPLIT, P(), P("data")), "out_specs": P()}
            return jax.shard_map(local, mesh=self.mesh, **specs)(w, state["key"], batch)

        return jax.value_and_grad(loss)(state["parameters"])


plant_stranger(Adds())
plant_stranger(drops("drops_along_devices", Adds, adds=True), "NUM-9")
plant_stranger(drops("last_device_draws_alike", Adds, last_stays=True), "NUM-9")
plant_stranger(DropsRows())
plant_stranger(drops("rows_dropped_alike", DropsRows, rows_alike=True), "NUM-9")
plant_stranger(AddsLayers())
plant_stranger(drops("drops_along_layers", AddsLayers, adds=True), "NUM-9")
plant_stranger(Tensor())
plant_stranger(drops("healthy_drops_whole", Tensor, drops_units=False))
plant_stranger(drops("units_dropped_alike", Tensor, units_alike=True), "NUM-9")
plant_stranger(drops("healthy_drops_seldom", DropsPaths, kept=0.999))
