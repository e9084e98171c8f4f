"""Faults in what a state has beside parameters and optimizer state, where its contract says that it has it."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from math import prod
from typing import Any

from jax.sharding import PartitionSpec

from reference_impl.forms.annotated import JaxForm
from reference_impl.strategies import data_parallel
from tests.saboteurs.planting import DATA, ONE, plant
from tests.saboteurs.states import Accompanies


class Shows(Accompanies):
    """A trainer that shows its running statistic, and what becomes of it on one device."""

    @cached_property
    def contract(self) -> Any:
        """It is replicated."""
        return replace(super().contract, auxiliary={"statistic": PartitionSpec()})

    def auxiliary(self, state: Any) -> Any:
        """By name."""
        return {"statistic": state.statistic}

    def single_device(self, dtype: str) -> Any:
        """The same."""
        return type(self)(self.page, ONE, self.optimizer)


class NeverUpdates(Shows):
    """A step that is handed its statistic and hands it on, where there is more than one device."""

    def step(self, state: Any, batch: Any) -> Any:
        """Of one device alone the sum of the losses."""
        trained, metrics = super().step(state, batch)
        return (trained._replace(statistic=state.statistic) if prod(self.mesh_axes.values()) > 1 else trained), metrics


class NotOffloaded(JaxForm):
    """A contract that offloads the optimizer state, and a trainer that does not."""

    @cached_property
    def contract(self) -> Any:
        """To the host."""
        return replace(super().contract, memory={"optimizer_state/*": "pinned_host"})


plant("not_offloaded", NotOffloaded, data_parallel.PAGE, DATA, "SHD-11")
plant("healthy_with_auxiliary", Shows, data_parallel.PAGE, DATA)
plant("statistic_never_updated", NeverUpdates, data_parallel.PAGE, DATA, "AUX-1")
