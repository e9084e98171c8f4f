"""Two towers whose loss compares every pair of the batch: ``pytest suites/ --impl tests.healthy.contrastive``."""

import jax
import jax.numpy as jnp

from .manual import Manual
from .trainer import LOSS, WHOLE, moves

EMBEDDED = ((64, 12), (64, 12))
"""Of the whole batch, by either tower."""


class Contrastive(Manual):
    """Each device gathers what the others embedded; a temperature of one element is learned."""

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


def strategies():
    """The one of them."""
    return [Contrastive()]
