"""Trainers that draw, and keep something of each example in their state: an environment, a carried activation."""

from typing import Any

import jax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from meshproof.contract import Contract
from tests.saboteurs.drawing import Drops, drops
from tests.saboteurs.planting import plant_stranger
from tests.saboteurs.strangers import WHOLE

ROWS = {"*": P("data")}


class Carries(Drops):
    """Half of each example is what it was in the step before."""

    name = "healthy_carries"

    @property
    def contract(self) -> Contract:
        """What is carried is where its example is."""
        return Contract(WHOLE, WHOLE, WHOLE, ROWS, auxiliary=ROWS)

    def load(self, parameters: Any) -> Any:
        """What is carried begins with draws, others for each example."""
        carried = jax.random.normal(jax.random.key(11), (64, 16), jax.tree.leaves(parameters)[0].dtype)
        return super().load(parameters) | {"carried": jax.device_put(carried, NamedSharding(self.mesh, P("data")))}

    def auxiliary(self, state: Any) -> Any:
        """What is carried."""
        return {"carried": state["carried"]}

    def both(self, state: Any, batch: Any) -> Any:
        """Loss and gradients."""
        return super().both(state, batch | {"x": (batch["x"] + state["carried"]) / 2})

    def step(self, state: Any, batch: Any) -> Any:
        """It is carried on."""
        new, metrics = super().step(state, batch)
        return new | {"carried": (batch["x"] + state["carried"]) / 2}, metrics


plant_stranger(Carries())
plant_stranger(drops("carries_and_drops_alike", Carries, own_stream=False), "NUM-9")
