"""Faults of an average of the parameters that ``pmap`` keeps on every device."""

from typing import Any

import jax
import jax.numpy as jnp

from tests.healthy.manual import Pmap
from tests.healthy.trainer import WHOLE
from tests.saboteurs.planting import plant_stranger


class AveragesCopies(Pmap):
    """As it should be: every device averages its own copy of the parameters."""

    name, model = "averages_copies", "averaged_mlp"
    promises = Pmap.promises | {"auxiliary": WHOLE}

    def start(self, parameters: Any) -> Any:
        """The average begins where they do."""
        return super().start(parameters) | {"average": jax.tree.map(jnp.copy, parameters)}

    def update(self, state: Any, batch: Any) -> Any:
        """One step."""
        trained, metrics = super().update(state, batch)
        average = jax.tree.map(lambda old, new: 0.9 * old + 0.1 * new, state["average"], trained["parameters"])
        return trained | {"average": self.kept(average, state)}, metrics

    def kept(self, average: Any, state: Any) -> Any:
        """What becomes the average."""
        return average

    def auxiliary(self, state: Any) -> Any:
        """By name, without the dimension of devices."""
        return self.copies(state["average"])


class AveragesOnFirstDevice(AveragesCopies):
    """What saves the average reads the first device, and nobody looks at the others before they are restarted."""

    name = "averages_on_first_device"

    def kept(self, average: Any, state: Any) -> Any:
        """The old one elsewhere."""
        return jax.tree.map(lambda new, old: jnp.where(self.averages(state), new, old), average, state["average"])

    def averages(self, state: Any) -> Any:
        """Whether this device does."""
        return jax.lax.axis_index("data") == 0


class AveragesOnFirstDeviceLate(AveragesOnFirstDevice):
    """Which begins to after some steps."""

    name = "averages_on_first_device_late"

    def start(self, parameters: Any) -> Any:
        """None was taken."""
        return super().start(parameters) | {"taken": jnp.zeros((), jnp.int32)}

    def update(self, state: Any, batch: Any) -> Any:
        """One more."""
        trained, metrics = super().update(state, batch)
        return trained | {"taken": state["taken"] + 1}, metrics

    def averages(self, state: Any) -> Any:
        """Not before the twentieth."""
        return super().averages(state) & (state["taken"] >= 20)


plant_stranger(AveragesCopies())
plant_stranger(AveragesOnFirstDevice(), "NUM-6")
plant_stranger(AveragesOnFirstDeviceLate(), "NUM-6")
