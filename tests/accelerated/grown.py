"""marin#5394 rebuilt small: the same trainer, whose step holds every activation where ``$GROWN`` is set."""

import os

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

from tests.accelerated.trainer import D, Trainer

EXAMPLES = 1 << 16


class Grown(Trainer):
    """A batch that is never made."""

    def abstract_batch(self):
        """As `shard_batch` lays it out."""
        placed = NamedSharding(self.mesh, PartitionSpec("data"))
        return {name: jax.ShapeDtypeStruct((EXAMPLES, D), jnp.float32, sharding=placed) for name in "xy"}

    def recompute(self, body):
        """What an upgrade may undo."""
        return body if os.environ.get("GROWN") else super().recompute(body)


def strategies():
    """One trainer, without a budget: of its memory it is that the two runs differ."""
    return [Grown("grown", depth=64, budgeted=False)]
