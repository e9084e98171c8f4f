"""Faults of trainers that draw, and bring no truth but their own run on one device."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import PartitionSpec as P

from meshproof.contract import Contract
from tests.healthy.idioms import Trainer
from tests.saboteurs.planting import plant_stranger
from tests.saboteurs.strangers import WHOLE

AWAY = 1 << 20
"""What a key is moved on by: no device has that number, and so none has drawn by what comes next."""


def drop(key: Any, x: Any, kept: float = 0.9) -> Any:
    """All but a share of it."""
    return jnp.where(jax.random.bernoulli(key, kept, x.shape), x / kept, 0)


def without_the_last(gradients: Any, axis: str) -> Any:
    """A mean that forgets what the last of several devices has."""
    last = (jax.lax.axis_size(axis) > 1) & (jax.lax.axis_index(axis) == jax.lax.axis_size(axis) - 1)
    return jax.lax.pmean(jax.tree.map(lambda gradient: jnp.where(last, 0, gradient), gradients), axis)


class Drops(Trainer):
    """Dropout, with a stream of each device's own, as shard_map invites to."""

    name = "healthy_drops"
    draws = True
    own_stream = True
    devices_alike = 1
    layers_share = False
    moves_on = True
    kept = 0.9
    reduce = staticmethod(jax.lax.pmean)

    def __init__(self, devices: int = 8) -> None:
        super().__init__(devices)
        self.loss = jax.jit(lambda state, batch: self.both(state, batch)[0])
        self.gradients = jax.jit(lambda state, batch: self.both(state, batch)[1])

    @property
    def contract(self) -> Contract:
        """A budget left open."""
        return Contract(WHOLE, WHOLE, WHOLE, {"*": P("data")})

    def start(self, parameters: Any) -> Any:
        """With a typed key."""
        return super().start(parameters) | {"key": jax.random.key(7)}

    def dropped(self, w: Any, batch: Any, key: Any) -> Any:
        """The loss of a shard."""
        first, second = jax.random.split(key)
        hidden = drop(first, jnp.tanh(batch["x"] @ w["hidden"]), self.kept)
        seen = drop(first if self.layers_share else second, hidden @ w["out"], self.kept)
        return jnp.mean((seen - batch["y"]) ** 2)

    def both(self, state: Any, batch: Any) -> Any:
        """Loss and gradients."""

        def local(w: Any, key: Any, batch: Any) -> Any:
            if self.own_stream:
                key = jax.random.fold_in(key, jax.lax.axis_index("data") // self.devices_alike)
            value, gradients = jax.value_and_grad(self.dropped)(w, batch, key)
            return jax.lax.pmean(value, "data"), self.reduce(gradients, "data")

        specs = {"in_specs": (P(), P(), P("data")), "out_specs": P(), "check_vma": False}
        return jax.shard_map(local, mesh=self.mesh, **specs)(state["parameters"], state["key"], batch)

    def step(self, state: Any, batch: Any) -> Any:
        """One update, and another key."""
        value, gradients = self.both(state, batch)
        updates, optimizer = self.optimizer.update(gradients, state["optimizer"], state["parameters"])
        key = jax.random.fold_in(state["key"], AWAY) if self.moves_on else state["key"]
        parameters = optax.apply_updates(state["parameters"], updates)
        return {"parameters": parameters, "optimizer": optimizer, "key": key}, {"loss": value}


class DropsByItsCount(Drops):
    """The key of a step is of its count, up to a last one."""

    name = "drops_by_its_count"
    last = 5
    moves_on = False

    def both(self, state: Any, batch: Any) -> Any:
        """Loss and gradients."""
        count = jnp.minimum(state["optimizer"][0].count, self.last)
        return super().both(state | {"key": jax.random.fold_in(state["key"], count)}, batch)


class DropsPaths(Drops):
    """Whole examples leave out their hidden layer, few of them: two devices often leave out none."""

    name = "healthy_drops_paths"

    def dropped(self, w: Any, batch: Any, key: Any) -> Any:
        """The loss of a shard."""
        hidden = jnp.tanh(batch["x"] @ w["hidden"])
        kept = jax.random.bernoulli(key, self.kept, (len(hidden), 1))
        return jnp.mean((jnp.where(kept, hidden / self.kept, 0) @ w["out"] - batch["y"]) ** 2)


class MixesMirrored(Drops):
    """Each example is mixed with the one at its mirrored place, by one share for all: halves may change places."""

    name = "healthy_mixes_mirrored"

    def both(self, state: Any, batch: Any) -> Any:
        """Loss and gradients, of the whole batch."""
        return jax.value_and_grad(self.mixed)(state["parameters"], batch, state["key"])

    def mixed(self, w: Any, batch: Any, key: Any) -> Any:
        """The loss of the mixture, as much of it by the labels of either."""
        share = jax.random.beta(key, 0.4, 0.4)
        x = share * batch["x"] + (1 - share) * batch["x"][::-1]
        seen = jnp.tanh(x @ w["hidden"]) @ w["out"]
        parts = (jnp.mean((seen - y) ** 2) for y in (batch["y"], batch["y"][::-1]))
        return sum(weight * part for weight, part in zip((share, 1 - share), parts, strict=True))


class DropsOnOneDevice(Drops):
    """Several devices keep all, as where the rate is lost on the way to them."""

    @property
    def kept(self) -> float:  # type: ignore[override]
        """All, but on one device."""
        return 0.9 if self.mesh_axes["data"] == 1 else 1.0


class KeysInBatch(Trainer):
    """Dropout of inputs, by a key of each example that the loader draws."""

    name = "healthy_keys_in_batch"
    draws = True

    def batch(self, draws: Any) -> Any:
        """With raw keys."""
        return super().batch(draws) | {"key": draws.integers(0, 2**32, size=(64, 2), dtype=np.uint32)}

    def mean_loss(self, w: Any, batch: Any) -> Any:
        """Of the inputs that are kept."""
        kept = jax.vmap(lambda key: jax.random.bernoulli(key, 0.9, (16,)))(batch["key"])
        return super().mean_loss(w, batch | {"x": batch["x"] * kept})


def drops(name: str, base: type[Drops] = Drops, **members: Any) -> Trainer:
    """One that drops in another way."""
    kind: Any = type(name, (base,), {"name": name} | members)
    return kind()


class Splits(Trainer):
    """Moves a key on, and draws nothing of it: what it computes is one device's, whatever the key."""

    name = "healthy_splits"
    times = 1

    def start(self, parameters: Any) -> Any:
        """With a typed key."""
        return super().start(parameters) | {"key": jax.random.key(7)}

    def mean_loss(self, w: Any, batch: Any) -> Any:
        """On a mesh so many times too long."""
        return (self.times if self.mesh_axes["data"] > 1 else 1) * super().mean_loss(w, batch)

    def step(self, state: Any, batch: Any) -> Any:
        """One update, and the next key."""
        new, metrics = super().step({name: state[name] for name in ("parameters", "optimizer")}, batch)
        return new | {"key": jax.random.split(state["key"], 2)[0]}, metrics


class Projects(Trainer):
    """Random features of one key in every step, which no state has: they are meant to be the same."""

    name = "healthy_projects"

    def mean_loss(self, w: Any, batch: Any) -> Any:
        """Of projected inputs."""
        features = jax.random.normal(jax.random.key(5), (16, 16)) / 4
        return super().mean_loss(w, batch | {"x": batch["x"] @ features})


class DrawsTheSame(Projects):
    """They were to be others in each step, and all examples share them."""

    name = "draws_the_same"
    draws = True


class SplitsAndSums(Splits):
    """A sum over devices in place of their mean."""

    name = "splits_and_sums"
    times = 8


class DropsOut(Trainer):
    """Dropout of the global batch's rows, which its trainer without it does not have."""

    name = "healthy_drops_out"
    draws = True

    def __init__(self, devices: int = 8, rate: float = 0.1) -> None:
        self.rate = rate
        super().__init__(devices)
        self.loss = jax.jit(lambda state, batch: self.dropped(state["parameters"], batch, state))
        self.gradients = jax.jit(lambda state, batch: jax.grad(self.dropped)(state["parameters"], batch, state))

    def dropped(self, w: Any, batch: Any, state: Any) -> Any:
        """The loss with the draws of this step."""
        key = jax.random.fold_in(jax.random.key(3), state["optimizer"][0].count)
        kept = jax.random.bernoulli(key, 1 - self.rate, batch["x"].shape) if self.rate else 1
        return self.mean_loss(w, batch | {"x": batch["x"] * kept})

    def step(self, state: Any, batch: Any) -> Any:
        """One update."""
        value, gradients = jax.value_and_grad(self.dropped)(state["parameters"], batch, state)
        updates, optimizer = self.optimizer.update(gradients, state["optimizer"], state["parameters"])
        return {"parameters": optax.apply_updates(state["parameters"], updates), "optimizer": optimizer}, {
            "loss": value
        }

    def without_draws(self) -> Trainer:
        """At a rate of 0."""
        return type(self)(self.mesh_axes["data"], rate=0.0)

    def single_device(self, dtype: str) -> Trainer:
        """The same."""
        return type(self)(1, self.rate)


plant_stranger(DropsOut())
plant_stranger(Splits())
plant_stranger(Projects())
plant_stranger(DrawsTheSame(), "NUM-9")
plant_stranger(SplitsAndSums(), "NUM-2", "NUM-4")
plant_stranger(KeysInBatch())
plant_stranger(drops("healthy_drops"))
plant_stranger(drops("healthy_drops_half", kept=0.5))
plant_stranger(drops("drops_and_forgets_a_device", reduce=staticmethod(without_the_last)), "NUM-9")
plant_stranger(drops("drops_half_and_forgets_a_device", kept=0.5, reduce=staticmethod(without_the_last)), "NUM-9")
plant_stranger(drops("healthy_drops_by_its_count", DropsByItsCount, last=2**30))
plant_stranger(drops("healthy_drops_most", kept=0.2))
plant_stranger(drops("drops_most_and_sums", kept=0.2, reduce=staticmethod(jax.lax.psum)), "NUM-9")
plant_stranger(drops("drops_and_sums", reduce=staticmethod(jax.lax.psum)), "NUM-9")
plant_stranger(drops("drops_on_one_device_alone", DropsOnOneDevice), "NUM-9")
plant_stranger(drops("drops_alike_on_devices", own_stream=False), "NUM-9")
plant_stranger(DropsPaths())
plant_stranger(MixesMirrored())
plant_stranger(drops("drops_alike_and_shows_no_parameters", own_stream=False, parameters=None), "NUM-9")
plant_stranger(drops("healthy_drops_few_paths", DropsPaths, kept=0.97))
plant_stranger(drops("paths_alike_on_two_devices", DropsPaths, devices_alike=2), "NUM-9")
plant_stranger(drops("drops_alike_on_two_devices", devices_alike=2), "NUM-9")
plant_stranger(drops("drops_alike_late", DropsByItsCount), "NUM-9")
plant_stranger(drops("drops_alike_in_steps", moves_on=False), "NUM-9")
plant_stranger(drops("drops_alike_in_layers", layers_share=True), "NUM-9")
