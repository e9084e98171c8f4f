"""ZeRO-1 of one vector, written out by hand: ``pytest suites/ --impl tests.healthy.raveled``."""

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jax.sharding import PartitionSpec as P

from .manual import Manual
from .trainer import LOSS, moves

ALIGNED = 128
"""Elements: eight devices have as many each, and each of them whole vectors of sixteen."""


class Raveled(Manual):
    """All gradients are one padded vector, of which each device updates its part."""

    name, model = "zero1_raveled", "raveled_mlp"
    shapes = {"hidden": (16, 31), "out": (31, 8)}
    moments = {"*count": P(), "*": P("data")}
    padded = (768,)
    forward_moves = (LOSS,)
    step_moves = (moves("reduce-scatter", "gradients", padded), moves("all-gather", "parameters", padded), LOSS)

    def start(self, parameters):
        """Moments of the vector."""
        return {"parameters": parameters, "optimizer": self.optimizer.init(self.vector(parameters))}

    def vector(self, tree):
        """One leaf after the other, and zeros."""
        vector, _ = ravel_pytree(tree)
        return jnp.pad(vector, (0, -vector.size % ALIGNED))

    def update(self, state, batch):
        """On every device."""
        specs = jax.tree.map(lambda layout: layout.spec, self.layouts)
        options = {"in_specs": (specs, self.rows), "out_specs": (specs, P()), "check_vma": False}
        return jax.shard_map(self.local_update, mesh=self.mesh, **options)(state, batch)

    def local_update(self, state, batch):
        """Of this device's part."""
        whole, back = ravel_pytree(state["parameters"])
        value, gradients = jax.value_and_grad(lambda w: super(Manual, self).mean_loss(w, batch))(state["parameters"])
        gradient = self.scattered(self.vector(gradients))
        own = self.part(self.vector(state["parameters"]), len(gradient))
        updates, optimizer = self.optimizer.update(gradient, state["optimizer"], own)
        updated = self.gathered(optax.apply_updates(own, updates))
        return {"parameters": back(updated[: whole.size]), "optimizer": optimizer}, {"loss": self.mean(value)}

    def scattered(self, vector):
        """This device's part of the mean."""
        return jax.lax.psum_scatter(vector, "data", tiled=True) / self.mesh.size

    def part(self, vector, length):
        """Of a whole vector."""
        return jax.lax.dynamic_slice_in_dim(vector, jax.lax.axis_index("data") * length, length)

    def gathered(self, part):
        """The parts of all devices."""
        return jax.lax.all_gather(part, "data", tiled=True)


def strategies():
    """The one."""
    return [Raveled()]
