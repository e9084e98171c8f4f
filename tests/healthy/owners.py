"""Preconditioners that have owners: ``pytest suites/ --impl tests.healthy.owners``."""

from functools import cached_property

import jax
import jax.numpy as jnp
import optax
from jax.sharding import PartitionSpec as P

from .trainer import LOSS, Functional, moves

LAYERS = (8, 16, 16)


class Owned(Functional):
    """Each device keeps the products of one layer's gradients, and all precondition every layer by them."""

    name, model = "owned_preconditioners", "stacked_mlp"
    shapes = {"layers": LAYERS, "out": (16, 8)}
    moments = {"0": P("data"), "*": P()}
    forward_moves = (LOSS,)
    step_moves = (
        moves("all-reduce", "gradients", *shapes.values()),
        moves("all-gather", "statistics", LAYERS),
        LOSS,
    )

    def mean_loss(self, w, batch):
        """Each layer adds to its input."""
        x = batch["x"]
        for layer in range(len(w["layers"])):
            x = x + jnp.tanh(x @ w["layers"][layer]) / 4
        return jnp.mean((x @ w["out"] - batch["y"]) ** 2)

    @cached_property
    def optimizer(self):
        """Of this mesh."""
        owned = optax.GradientTransformation(lambda w: jnp.zeros(LAYERS, w["layers"].dtype), self.preconditioned)
        return optax.chain(owned, optax.trace(0.9), optax.scale(-1e-1))

    def preconditioned(self, gradients, products, w=None):
        """On every device."""
        options = {"in_specs": (P(), P("data")), "out_specs": (P(), P("data")), "check_vma": False}
        divided, products = jax.shard_map(self.local, mesh=self.mesh, **options)(gradients["layers"], products)
        return gradients | {"layers": divided}, products

    def local(self, of, products):
        """Divides by one and an average of the products of columns, to first order."""
        own = self.own(of, len(products))
        products = 0.9 * products + 0.1 * jnp.swapaxes(own, 1, 2) @ own
        return of - of @ self.gathered(products), products

    def own(self, of, count):
        """The layers that this device keeps the products of."""
        return jax.lax.dynamic_slice_in_dim(of, jax.lax.axis_index("data") * count, count)

    def gathered(self, products):
        """On every device."""
        return jax.lax.all_gather(products, "data", tiled=True)


def strategies():
    """The one."""
    return [Owned()]
