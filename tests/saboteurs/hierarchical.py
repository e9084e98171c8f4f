"""Faults of an all-reduce in three parts."""

from typing import Any

from tests.healthy.hierarchical import Hierarchical
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


plant_stranger(HostsApart(), "COM-2", "NUM-2")
plant_stranger(HalfBetweenHosts(), "COM-2", "NUM-2")
