"""Pipelines: the page's per-device program, run by ``jax.shard_map`` on a model that is cut into stages."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any, ClassVar

import jax
import numpy as np
from jax.sharding import NamedSharding

from meshproof.contract import Batch, Slot, Tree
from reference_impl import optimizers
from reference_impl.forms.base import TrainState
from reference_impl.forms.manual import ShardMapped
from reference_impl.forms.pipeline import STAGE
from reference_impl.models.stacked_mlp import StackedMLP
from reference_impl.models.stacked_mlp_nnx import NnxStackedMLP
from reference_impl.models.staged import Staged
from reference_impl.page import PipelinePage
from reference_impl.theory.communication import PipelineTraffic
from reference_impl.theory.schedules import Schedule, forward_only


@dataclass(frozen=True)
class Pipelined(ShardMapped):
    """The page's program, by its schedule. Raises ``ValueError`` where the stages do not divide the blocks."""

    page: PipelinePage
    network: Staged = field(default_factory=StackedMLP)
    batch_size: int = 512
    microbatches: int = 8

    def __post_init__(self) -> None:
        depths = self.timetable.depths
        if self.network.depth % depths:
            raise ValueError(
                f"{self.network.depth} blocks are not divisible by {self.mesh_axes[STAGE]} stages of "
                f"{self.timetable.chunks} chunks"
            )
        super().__post_init__()

    @property
    def timetable(self) -> Schedule:
        """The page's schedule on this mesh. Warns of fewer microbatches than stages."""
        return self.page.make_schedule(self.mesh_axes[STAGE], self.microbatches)

    @cached_property
    def schedule(self) -> tuple[Slot, ...]:
        """The slots of `timetable`, in the order of their ticks."""
        return self.timetable.slots

    @property
    def order(self) -> list[int]:
        """The order in which blocks are stacked: each stage's chunks, one after another."""
        stages, depths = self.timetable.stages, self.timetable.depths
        size = self.network.depth // depths
        return [
            block
            for stage in range(stages)
            for depth in range(stage, depths, stages)
            for block in range(depth * size, (depth + 1) * size)
        ]

    @property
    def traffic(self) -> PipelineTraffic:
        """The traffic that turns the page's budget into bytes; activations by the schedule."""
        return PipelineTraffic(self.network, self.page, self.mesh_axes, self.batch_size, schedule=self.timetable)

    def place(self, batch: Batch) -> dict[str, tuple[np.ndarray, NamedSharding]]:
        """As every form. Raises ``ValueError`` where microbatches do not divide a device's part."""
        shards = prod(self.mesh_axes[axis] for axis in self.page.compute.of("batch"))
        for name, value in batch.items():
            if len(value) % (shards * self.microbatches):
                raise ValueError(
                    f"batch field {name!r} of {len(value)} examples is not divisible by {shards} shards of "
                    f"{self.microbatches} microbatches"
                )
        return super().place(batch)

    def load(self, parameters: Tree) -> TrainState:
        """A state that holds these canonical host values."""
        return super().load(self.network.stack(parameters, self.order))

    def local_loss(self, parameters: Tree, batch: Batch) -> jax.Array:
        """The page's, by a schedule that only goes forward."""
        timetable = self.timetable
        passes = forward_only(timetable.stages, timetable.microbatches, timetable.chunks)
        return self.page.loss(self.network, passes, parameters, batch)

    def local_loss_and_gradients(self, parameters: Tree, batch: Batch) -> tuple[jax.Array, Tree]:
        """The page's, by its schedule."""
        return self.page.loss_and_gradients(self.network, self.timetable, parameters, batch)

    @cached_property
    def gradients(self) -> Any:
        """``(state, batch)`` to the gradients as a canonical tree."""
        stacked = super().gradients
        return lambda state, batch: self.unstack(stacked(state, batch))

    def unstack(self, tree: Tree) -> Tree:
        """A stacked tree to the canonical one. On the host, so that no device program gathers what the stages hold."""
        return self.network.unstack(jax.device_get(tree), self.order)

    def parameters(self, state: TrainState) -> Tree:
        """The canonical parameter tree of host arrays."""
        return self.unstack(state.parameters)

    def optimizer_state(self, state: TrainState) -> Tree:
        """The canonical optimizer tree of host arrays."""
        parts = optimizers.canonical(self.optimizer, state.optimizer)
        return {name: self.unstack(part) if isinstance(part, dict) else part for name, part in parts.items()}

    def at_rest(self, state: TrainState) -> dict[str, Tree]:
        """The trees as the devices hold them, stacked."""
        return {
            "parameters": state.parameters,
            "optimizer_state": optimizers.canonical(self.optimizer, state.optimizer),
        }


@dataclass(frozen=True)
class NnxPipelined(Pipelined):
    """The same of NNX modules."""

    framework: ClassVar[str] = "nnx"

    network: Staged = field(default_factory=NnxStackedMLP)
