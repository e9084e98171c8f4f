"""Losses that take the examples of several devices together: ``pytest suites/ --impl tests.healthy.together``."""

import jax
import jax.numpy as jnp
import numpy as np

from .manual import Manual
from .recipes import DataParallel
from .trainer import LOSS, WHOLE, moves

EMBEDDED = ((64, 12), (64, 12))
"""Of the whole batch, by either tower."""


class Contrastive(Manual):
    """Two towers, of which each pair is compared: each device gathers what the others embedded; a temperature of one
    element is learned."""

    name, model = "contrastive", "two_towers"
    shapes = {"x": (16, 12), "y": (8, 12), "temperature": (1,)}
    promises = Manual.promises | {"computed": WHOLE}
    forward_moves = (moves("all-gather", "activations", *EMBEDDED), LOSS)
    step_moves = (
        *forward_moves,
        moves("reduce-scatter", "activations", *EMBEDDED),
        moves("all-reduce", "gradients", *shapes.values()),
    )

    def local_loss(self, w, batch):
        """Which of all rows of ``y`` belongs to a row of ``x``, and the other way round."""
        own = jnp.stack([jnp.tanh(batch[name] @ w[name]) for name in ("x", "y")])
        others = self.gathered(own)[::-1]
        scores = jax.nn.log_softmax(jnp.einsum("tbd,tnd->tbn", own, others) * jnp.exp(w["temperature"]))
        rows = jnp.arange(own.shape[1])
        return -jax.lax.pmean(scores[:, rows, self.first_of(own) + rows].mean(), "data")

    def first_of(self, part):
        """The number of the device's first row in the batch."""
        return jax.lax.axis_index("data") * part.shape[1]

    def gathered(self, part):
        """The rows of all devices."""
        return jax.lax.all_gather(part, "data", axis=1, tiled=True)


class Decorrelated(DataParallel):
    """Two views of each row, whose features are normalised over the batch and must not tell the same: nothing runs
    along, and all that is reduced in the forward pass has a gradient."""

    name, model = "decorrelated", "tower_of_views"
    shapes = {"tower": (16, 8)}
    means = moves("all-reduce", "metrics", (2, 8), times=3)
    forward_moves = (means, moves("all-reduce", "metrics", (8, 8)))
    step_moves = (moves("all-reduce", "gradients", *shapes.values()), *forward_moves, means)

    def batch(self, draws):
        """64 rows of two views."""
        x = draws.normal(size=(64, 1, 16))
        return {"x": x + 0.3 * draws.normal(size=(64, 2, 16))}

    def mean_loss(self, w, batch):
        """How far the correlation of the views is from the identity."""
        z = self.normalised(jnp.tanh(batch["x"] @ w["tower"]))
        return jnp.sum((z[:, 0].T @ z[:, 1] / len(z) - jnp.eye(8, dtype=z.dtype)) ** 2)

    def normalised(self, z):
        """By mean and variance of all rows."""
        return (z - z.mean(0)) * jax.lax.rsqrt(z.var(0) + 1e-5)


class Mixup(DataParallel):
    """Each row with another one, by an order that the loader draws."""

    name, model = "mixup", "mixed_mlp"
    forward_moves = (moves("all-gather", "examples", (64, 16), (64, 8)), LOSS)
    step_moves = (forward_moves[0], *DataParallel.step_moves)

    def batch(self, draws):
        """64 rows, and for each the number of another."""
        return super().batch(draws) | {"other": draws.permutation(64).astype(np.int32)}

    def mean_loss(self, w, batch):
        """Of seven tenths of a row and three of the other."""
        return super().mean_loss(w, {name: self.mixed(batch[name], batch["other"]) for name in ("x", "y")})

    def mixed(self, rows, other):
        """Of all devices."""
        return 0.7 * rows + 0.3 * rows[other]


class ManifoldMixup(DataParallel):
    """Mixes what a hidden layer makes of the rows, the first with the last, and so on."""

    name, model = "manifold_mixup", "inwardly_mixed_mlp"
    promises = {"computed": WHOLE}
    forward_moves = (
        moves("collective-permute", "examples", (8, 8)),
        moves("collective-permute", "activations", (8, 32)),
        LOSS,
    )
    step_moves = (
        forward_moves[0],
        moves("collective-permute", "activations", (8, 32), times=2),
        *DataParallel.step_moves,
    )

    def mean_loss(self, w, batch):
        """Of half a row and half the other."""
        both = jnp.tanh(batch["x"] @ w["hidden"]), batch["y"]
        hidden, wanted = ((rows + rows[::-1]) / 2 for rows in both)
        return jnp.mean((hidden @ w["out"] - wanted) ** 2)


def strategies():
    """All of them."""
    return [Contrastive(), Decorrelated(), Mixup(), ManifoldMixup()]
