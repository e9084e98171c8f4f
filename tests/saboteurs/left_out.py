"""Examples that a mesh leaves out or has on every device, and a step that goes further than on one device."""

from typing import Any

import jax
import optax

from tests.healthy.idioms import Trainer
from tests.healthy.manual import DataParallel
from tests.healthy.recipes import SplitsInside
from tests.saboteurs.planting import plant_stranger


class DeviceLeftOut(Trainer):
    """The mean of all devices but the last."""

    name = "device_left_out"

    def kept(self, rows: Any) -> Any:
        """Those that count."""
        return rows[: -len(rows) // self.mesh_axes["data"]]

    def mean_loss(self, w: Any, batch: Any) -> Any:
        """Of these."""
        return super().mean_loss(w, jax.tree.map(self.kept, batch) if self.mesh_axes["data"] > 1 else batch)


class LastRowsDropped(DeviceLeftOut):
    """Each device drops the last quarter of its rows, as of a microbatch that is not full."""

    name = "last_rows_dropped"

    def kept(self, rows: Any) -> Any:
        """The first three quarters of each device's."""
        by_device = rows.reshape(self.mesh_axes["data"], -1, *rows.shape[1:])
        return by_device[:, : by_device.shape[1] * 3 // 4].reshape(-1, *rows.shape[1:])


class RateTimesDevices(Trainer):
    """A rate that was tuned for one device, times as many as there are."""

    name = "rate_times_devices"

    def __init__(self, devices: int = 8) -> None:
        self.optimizer = optax.adamw(1e-2 * devices)
        super().__init__(devices)


class LeafOfOneDevice(DataParallel):
    """One leaf has the gradient of the first device's examples."""

    name = "leaf_of_one_device"

    def local_loss(self, w: Any, batch: Any) -> Any:
        """Where nothing else passes a gradient on."""
        kept, first = jax.lax.stop_gradient(w["out"]), jax.lax.axis_index("data") == 0
        own = kept + first * self.mesh_axes["data"] * (w["out"] - kept)
        return super().local_loss(w | {"out": own}, batch)


class SplitsNothing(SplitsInside):
    """The constraint that splits a batch is gone: every device computes with all of it."""

    name = "splits_nothing"

    def split(self, batch: Any) -> Any:
        """As it is."""
        return batch


plant_stranger(DeviceLeftOut(), "NUM-2", "NUM-4")
plant_stranger(LastRowsDropped(), "NUM-2", "NUM-4")
plant_stranger(RateTimesDevices(), "NUM-3")
plant_stranger(LeafOfOneDevice(), "NUM-2", "NUM-4")
plant_stranger(SplitsNothing(), "SHD-4", "COM-1", "COM-2", "COM-11")
