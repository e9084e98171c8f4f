"""Faults that one process cannot show: what is said of all devices, and counts this process's own."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import jax
import numpy as np

from reference_impl.forms.annotated import JaxForm
from reference_impl.strategies import data_parallel, fsdp
from tests.saboteurs.planting import DATA, plant


class Spread(JaxForm):
    """Trained over two processes and four."""

    processes = (2, 4)  # type: ignore[assignment]


class ShowsNoMoments(Spread):
    """What it does not show is not judged."""

    optimizer_state = None  # type: ignore[assignment]


class CountsItsOwnDevices(Spread):
    """A mean that is made of a sum, and of the wrong number of devices."""

    def forward(self, parameters: Any, batch: Any) -> Any:
        """In one process there are as many."""
        return super().forward(parameters, batch) * (self.mesh.size / jax.local_device_count())


class ReadsAllOnTheHost(Spread):
    """Looks at whole parameters on the host after each step, which one process alone can."""

    @cached_property
    def train_step(self) -> Any:
        """And logs them."""
        return Logs(super().train_step)


class Logs:
    """A step with a look at the state it leaves."""

    def __init__(self, step: Any) -> None:
        self.step, self.lower = step, step.lower

    def __call__(self, state: Any, batch: Any) -> Any:
        """One step."""
        state, metrics = self.step(state, batch)
        jax.tree.map(np.asarray, state.parameters)
        return state, metrics


plant("healthy_over_processes", Spread, fsdp.PAGE, DATA)
plant("healthy_over_processes_without_moments", ShowsNoMoments, fsdp.PAGE, DATA)
plant("counts_its_own_devices", CountsItsOwnDevices, data_parallel.PAGE, DATA, "MPR-1")
plant("reads_all_on_the_host", ReadsAllOnTheHost, fsdp.PAGE, DATA, "MPR-1")
