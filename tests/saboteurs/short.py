"""Gradients in bfloat16 that are a fiftieth too short on the mesh: less than the bound of any leaf."""

from typing import Any

import jax

from tests.healthy.stored import Masters
from tests.saboteurs.planting import plant_stranger

SHARE = 0.98


class Short(Masters):
    """The loss is right, and its gradient is not."""

    name = "masters_a_fiftieth_short"

    def mean_loss(self, w: Any, batch: Any) -> Any:
        """A part of it has no gradient."""
        share = SHARE if self.mesh.size > 1 else 1.0
        value = super().mean_loss(w, batch)
        return share * value + (1 - share) * jax.lax.stop_gradient(value)


class ShortInStep(Masters):
    """The gradients are right where they are shown, and not where they are used."""

    name = "masters_a_fiftieth_short_in_the_step"

    def step(self, state: Any, batch: Any) -> Any:
        """That of the other."""
        return Masters.step(Short(self.mesh.size), state, batch)


plant_stranger(Short(), "MIX-1")
plant_stranger(ShortInStep(), "MIX-1")
