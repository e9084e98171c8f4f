"""Faults of an all-reduce in three parts, and of shards that are exchanged in 16 bits."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from tests.healthy.hierarchical import Hierarchical, HSDPInHalves
from tests.healthy.manual import Manual
from tests.healthy.trainer import moves
from tests.saboteurs.planting import plant_stranger

SHARED = tuple(line for line in Hierarchical.step_moves if "host" not in line.axes or line.payload == "metrics")


class HostsApart(Hierarchical):
    """Hosts train each for itself, and the budget was read from the program."""

    name = "hierarchical_hosts_apart"
    step_moves = SHARED

    def between_hosts(self, shard: Any) -> Any:
        """Never summed."""
        return shard * self.mesh.shape["host"]


class HalfBetweenHosts(Hierarchical):
    """What belongs to the first layers is taken for frozen, and the budget was read from the program."""

    name = "hierarchical_half_between_hosts"
    step_moves = (*SHARED, moves("all-reduce", "gradients", (95,), over=("host",)))

    def between_hosts(self, shard: Any) -> Any:
        """Of the second half alone."""
        half = shard.size // 2
        return shard.at[half:].set(super().between_hosts(shard[half:])).at[:half].multiply(self.mesh.shape["host"])


class WholeBetweenReplicas(HSDPInHalves):
    """Whole gradients are exchanged, and scattered after that; the budget was read from the program."""

    name = "halves_whole_between_replicas"
    step_moves = tuple(
        replace(line, bytes=4 * line.bytes) if line.axes == ("replica",) else line for line in HSDPInHalves.step_moves
    )

    def local_loss(self, w: Any, batch: Any) -> Any:
        """Gathered before they differ between replicas."""
        w, batch = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), (w, batch))
        whole = jax.lax.all_gather(w, "data", tiled=True)
        return Manual.local_loss(self, jax.lax.pcast(whole, "replica", to="varying"), batch)


plant_stranger(WholeBetweenReplicas(), "COM-7")
plant_stranger(HostsApart(), "COM-2", "NUM-2")
plant_stranger(HalfBetweenHosts(), "COM-2", "NUM-2")
