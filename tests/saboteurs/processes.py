"""Faults that one process cannot show: what is said of all devices, and counts this process's own."""

from __future__ import annotations

from typing import Any

import jax

from reference_impl.forms.annotated import JaxForm
from reference_impl.strategies import data_parallel, fsdp
from tests.saboteurs.planting import DATA, plant


class Spread(JaxForm):
    """Trained over two processes and four."""

    processes = (2, 4)  # type: ignore[assignment]


class CountsItsOwnDevices(Spread):
    """A mean that is made of a sum, and of the wrong number of devices."""

    def forward(self, parameters: Any, batch: Any) -> Any:
        """In one process there are as many."""
        return super().forward(parameters, batch) * (self.mesh.size / jax.local_device_count())


plant("healthy_over_processes", Spread, fsdp.PAGE, DATA)
plant("counts_its_own_devices", CountsItsOwnDevices, data_parallel.PAGE, DATA, "MPR-1")
