"""Faults of whole training loops, as people write them by hand."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import PartitionSpec as P

from meshproof.contract import Contract
from tests.healthy.idioms import Trainer
from tests.saboteurs.planting import plant_stranger
from tests.saboteurs.strangers import WHOLE, Sick


class Guarded(Trainer):
    """A masked mean, by hand; a step whose gradients are not finite changes nothing."""

    name = "healthy_guarded"
    asks_all = True

    def __init__(self, devices: int = 8) -> None:
        super().__init__(devices)
        self.loss = jax.jit(lambda state, batch: self.both(state["parameters"], batch)[0])
        self.gradients = jax.jit(lambda state, batch: self.both(state["parameters"], batch)[1])

    @property
    def contract(self) -> Contract:
        """A budget left open."""
        return Contract(WHOLE, WHOLE, WHOLE, {"*": P("data")})

    def batch(self, draws: Any) -> Any:
        """With a mask that is a number, and of which the devices have unequal parts."""
        rows = np.arange(64)
        return super().batch(draws) | {"mask": (rows % 8 <= rows // 8).astype(np.float32)}

    def both(self, w: Any, batch: Any) -> Any:
        """Loss and gradients of the global batch."""

        def local(w: Any, batch: Any) -> Any:
            count = jax.lax.psum(batch["mask"].sum(), "data")

            def mean(w: Any) -> Any:
                errors = jnp.mean((jnp.tanh(batch["x"] @ w["hidden"]) @ w["out"] - batch["y"]) ** 2, axis=-1)
                return jnp.sum(errors * batch["mask"]) / count

            value, gradients = jax.value_and_grad(mean)(w)
            if not self.asks_all:
                gradients = finite(gradients)
            return jax.lax.psum((value, gradients), "data")

        specs = {"in_specs": (P(), P("data")), "out_specs": P(), "check_vma": False}
        return jax.shard_map(local, mesh=self.mesh, **specs)(w, batch)

    def step(self, state: Any, batch: Any) -> Any:
        """One update, or none."""
        value, gradients = self.both(state["parameters"], batch)
        updates, optimizer = self.optimizer.update(finite(gradients), state["optimizer"], state["parameters"])
        return {"parameters": optax.apply_updates(state["parameters"], updates), "optimizer": optimizer}, {
            "loss": value
        }


def finite(gradients: Any) -> Any:
    """These gradients, or zeros where one of them is not finite."""
    good = jnp.all(jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(gradients)]))
    return jax.tree.map(lambda leaf: jnp.where(good, leaf, 0), gradients)


class GuardedByTheShard(Guarded):
    """Each device looks at its own gradients: one overflows, and the others train on."""

    name = "guarded_by_the_shard"
    asks_all = False


class SummedBeforeItsClip(Sick):
    """A sum for a mean, behind a clip that the first gradients reach: as long as they do, both are the same."""

    name = "summed_before_its_clip"
    optimizer = optax.chain(optax.clip_by_global_norm(0.05), optax.adamw(1e-3))  # type: ignore[assignment]

    def optimizer_state(self, state: Any) -> Any:
        """Adam's moments."""
        adam = state["optimizer"][1][0]
        return {"count": adam.count, "mu": adam.mu, "nu": adam.nu}

    def harmed(self, gradients: Any, state: Any, batch: Any) -> Any:
        """So many devices times too long."""
        return jax.tree.map(lambda g: self.mesh_axes["data"] * g, gradients)


class ClippedBehindItsMomentum(Trainer):
    """The threshold of an update is shared out over the devices: no moment shows it."""

    name = "clipped_behind_its_momentum"
    optimizer = optax.chain(optax.trace(0.9), optax.scale(-1e-3))

    def optimizer_state(self, state: Any) -> Any:
        """The momentum."""
        return state["optimizer"][0].trace

    def step(self, state: Any, batch: Any) -> Any:
        """One update, with what only a long one reaches."""
        value, gradients = jax.value_and_grad(self.mean_loss)(state["parameters"], batch)
        updates, optimizer = self.optimizer.update(gradients, state["optimizer"])
        clip = optax.clip_by_global_norm(0.8 / self.mesh_axes["data"])
        clipped, _ = clip.update(updates, optax.EmptyState())
        parameters = optax.apply_updates(state["parameters"], clipped)
        return state | {"parameters": parameters, "optimizer": optimizer}, {"loss": value}


plant_stranger(Guarded())
plant_stranger(GuardedByTheShard(), "NUM-13")
plant_stranger(SummedBeforeItsClip(), "NUM-13")
plant_stranger(ClippedBehindItsMomentum(), "NUM-13")
