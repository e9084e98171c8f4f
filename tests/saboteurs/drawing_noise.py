"""Faults of trainers that add noise to their gradients, which no loss of the same step shows."""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import PartitionSpec as P

from tests.healthy.idioms import Trainer
from tests.healthy.sharded import FSDP
from tests.saboteurs.drawing import Drops
from tests.saboteurs.planting import plant_stranger


class Noise(Trainer):
    """Adds noise to its gradients, which no loss of the same step shows."""

    name = "healthy_noise"
    draws = True

    def start(self, parameters: Any) -> Any:
        """With a typed key."""
        return super().start(parameters) | {"key": jax.random.key(3)}

    def step(self, state: Any, batch: Any) -> Any:
        """One update, and another key."""
        value, gradients = jax.value_and_grad(self.mean_loss)(state["parameters"], batch)
        key, *keys = jax.random.split(state["key"], 1 + len(gradients))
        noisy = {
            name: gradient + 1e-3 * jax.random.normal(own, gradient.shape)
            for own, (name, gradient) in zip(keys, gradients.items(), strict=True)
        }
        updates, optimizer = self.optimizer.update(noisy, state["optimizer"], state["parameters"])
        parameters = optax.apply_updates(state["parameters"], updates)
        return {"parameters": parameters, "optimizer": optimizer, "key": key}, {"loss": value}


class NoiseOfEach(Drops):
    """Each device adds noise of its own, of such a width that the sum of all is as wide as that of one device."""

    name = "healthy_noise_of_each"
    width, shown = 0.02, False

    def __init__(self, devices: int = 8) -> None:
        super().__init__(devices)
        if not self.shown:
            self.gradients = jax.jit(lambda state, batch: jax.grad(self.mean_loss)(state["parameters"], batch))

    def width_of(self, devices: int) -> float:
        """Of the noise that one of so many adds to a sum."""
        return self.width / devices**0.5

    def both(self, state: Any, batch: Any) -> Any:
        """Loss and noisy gradients."""
        devices = self.mesh_axes["data"]

        def local(w: Any, key: Any, batch: Any) -> Any:
            value, gradients = jax.value_and_grad(self.mean_loss)(w, batch)
            keys = jax.random.split(jax.random.fold_in(key, jax.lax.axis_index("data")), len(gradients))
            noisy = {
                name: gradient / devices + self.width_of(devices) * jax.random.normal(own, gradient.shape)
                for own, (name, gradient) in zip(keys, gradients.items(), strict=True)
            }
            return jax.lax.pmean(value, "data"), jax.lax.psum(noisy, "data")

        specs = {"in_specs": (P(), P(), P("data")), "out_specs": P(), "check_vma": False}
        return jax.shard_map(local, mesh=self.mesh, **specs)(state["parameters"], state["key"], batch)


class NoiseOfMean(NoiseOfEach):
    """Noise of all devices in a mean: too little."""

    name = "noise_of_mean"

    def width_of(self, devices: int) -> float:
        """As of a mean of as wide ones."""
        return self.width / devices


class NoiseOfSum(NoiseOfEach):
    """Noise of all devices in a sum: too much."""

    name = "noise_of_sum"

    def width_of(self, devices: int) -> float:
        """As if it were alone."""
        return self.width


def shows(kind: type[NoiseOfEach]) -> Trainer:
    """The same, whose gradients show the noise."""
    shown: Any = type(f"{kind.name}_shown", (kind,), {"name": f"{kind.name}_shown", "shown": True})
    return shown()


class NoiseStays(NoiseOfEach):
    """The same noise in every step."""

    name = "noise_stays"
    moves_on = False


class NoiseOfShards(FSDP):
    """Each device adds noise of its own to its shards, in the update."""

    name, model = "healthy_noise_of_shards", "noisy"
    draws = True
    step_moves = FSDP.step_moves[:3]
    optimizer = optax.chain(optax.trace(0.9), optax.scale_by_schedule(lambda count: -0.05))

    def key_of_shard(self) -> Any:
        """Of a device, and of all steps."""
        return jax.random.fold_in(jax.random.key(9), jax.lax.axis_index("data"))

    def width_of_shard(self) -> Any:
        """Of each element."""
        return 0.01

    def update(self, state: Any, batch: Any) -> Any:
        """With noise by the number of the step."""
        new, metrics = super().update(state, batch)

        def local(w: Any, count: Any) -> Any:
            keys = jax.random.split(jax.random.fold_in(self.key_of_shard(), count), len(w))
            return {
                name: shard + self.width_of_shard() * jax.random.normal(key, shard.shape)
                for key, (name, shard) in zip(keys, w.items(), strict=True)
            }

        specs = {"in_specs": (P("data"), P()), "out_specs": P("data")}
        noisy = jax.shard_map(local, mesh=self.mesh, **specs)(new["parameters"], state["optimizer"][1].count)
        return new | {"parameters": noisy}, metrics


class ShardsAlike(NoiseOfShards):
    """The same noise on every shard."""

    name = "noise_alike_on_shards"

    def key_of_shard(self) -> Any:
        """Of no device."""
        return jax.random.key(9)


class NoiseOfNarrowShards(NoiseOfShards):
    """As if what devices add were summed."""

    name = "noise_of_narrow_shards"

    def width_of_shard(self) -> Any:
        """By how many devices there are."""
        return 0.01 / jax.lax.axis_size("data") ** 0.5


class LastShardWithout(NoiseOfShards):
    """The last of several devices adds none."""

    name = "noise_without_the_last_shard"

    def width_of_shard(self) -> Any:
        """0 on that one."""
        devices = jax.lax.axis_size("data")
        return jnp.where((devices > 1) & (jax.lax.axis_index("data") == devices - 1), 0.0, 0.01)


plant_stranger(Noise())
plant_stranger(NoiseOfEach())
plant_stranger(shows(NoiseOfEach))
plant_stranger(NoiseOfMean(), "NUM-9")
plant_stranger(shows(NoiseOfMean), "NUM-9")
plant_stranger(NoiseOfSum(), "NUM-9")
plant_stranger(shows(NoiseOfSum), "NUM-9")
plant_stranger(NoiseStays(), "NUM-9")
plant_stranger(NoiseOfShards())
plant_stranger(ShardsAlike(), "NUM-9")
plant_stranger(NoiseOfNarrowShards(), "NUM-9")
plant_stranger(LastShardWithout(), "NUM-9")
