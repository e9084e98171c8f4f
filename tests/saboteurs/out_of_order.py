"""Everything counts once, beside another than on one device."""

from typing import Any

import jax

from tests.healthy.idioms import Trainer
from tests.healthy.manual import FSDP
from tests.saboteurs.planting import plant_stranger


class LabelsMovedByARow(Trainer):
    """Each row has the label of the row before."""

    name = "labels_moved_by_a_row"

    def mean_loss(self, w: Any, batch: Any) -> Any:
        """On a mesh."""
        moved = jax.numpy.roll(batch["y"], 1, 0) if self.mesh_axes["data"] > 1 else batch["y"]
        return super().mean_loss(w, batch | {"y": moved})


class GatheredInReverse(FSDP):
    """The last device's shard comes first."""

    name = "gathered_in_reverse"

    def local_loss(self, w: Any, batch: Any) -> Any:
        """Of what a mesh has gathered so."""
        devices = self.mesh_axes["data"]
        backwards = [(at, devices - 1 - at) for at in range(devices)]
        return super().local_loss(jax.tree.map(lambda each: jax.lax.ppermute(each, "data", backwards), w), batch)


plant_stranger(LabelsMovedByARow(), "NUM-2", "NUM-4")
plant_stranger(GatheredInReverse(), "NUM-2", "NUM-4", "COM-10")
