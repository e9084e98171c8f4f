"""Strategies by hand: what each device computes is the page's, and ``jax.shard_map`` runs it on the whole mesh."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import jax
from jax.sharding import PartitionSpec

from meshproof.contract import Batch, Tree
from reference_impl.forms.annotated import JaxForm
from reference_impl.forms.base import OnMesh, TrainState
from reference_impl.page import ManualPage


@dataclass(frozen=True)
class ShardMapped(JaxForm, ABC):
    """Runs the ``local_*`` methods of a subclass in ``shard_map``: they see one device's shards.

    ``check_vma`` is that of ``shard_map``: whether JAX tracks what varies over which mesh axes.
    """

    check_vma: bool = True

    explicit: ClassVar[bool] = True

    @abstractmethod
    def local_loss(self, parameters: Tree, batch: Batch) -> jax.Array:
        """The loss of the global batch, equal on every device."""

    @abstractmethod
    def local_loss_and_gradients(self, parameters: Tree, batch: Batch) -> tuple[jax.Array, Tree]:
        """That loss, and this device's shards of its gradients."""

    def local_update(self, parameters: Tree, state: Any, gradients: Tree) -> tuple[Tree, Any]:
        """This device's shards of the parameters and of the optimizer state after the optimizer."""
        return self.optimize(parameters, state, gradients)

    @property
    def unchecked_gradients(self) -> OnMesh:
        """`gradients`, where JAX does not check what varies from device to device, and transposes nothing by it."""
        return replace(self, check_vma=False).gradients if self.check_vma else self.gradients

    def forward(self, parameters: Tree, batch: Batch) -> jax.Array:
        """`local_loss` of global arrays."""
        return self.per_device(self.local_loss, self.argument_specs, PartitionSpec())(parameters, batch)  # type: ignore[no-any-return]

    def loss_and_gradients(self, parameters: Tree, batch: Batch) -> tuple[jax.Array, Tree]:
        """`local_loss_and_gradients` of global arrays."""
        out_specs = (PartitionSpec(), self.page.gradients.specs(self.network.axes))
        return self.per_device(self.local_loss_and_gradients, self.argument_specs, out_specs)(parameters, batch)  # type: ignore[no-any-return]

    def update(self, state: TrainState, gradients: Tree) -> TrainState:
        """`local_update` of global arrays."""
        specs = self.state_specs
        in_specs = (specs.parameters, specs.optimizer, self.page.gradients.specs(self.network.axes))
        with jax.named_scope("optimizer"):
            return TrainState(*self.per_device(self.local_update, in_specs, tuple(specs))(*state, gradients))

    @property
    def argument_specs(self) -> Any:
        """The layouts of the parameters and of the batch."""
        return self.state_specs.parameters, self.batch_specs

    def per_device(self, run: Any, in_specs: Any, out_specs: Any) -> Any:
        """``run`` in ``shard_map`` over the whole mesh."""
        return jax.shard_map(run, mesh=self.mesh, in_specs=in_specs, out_specs=out_specs, check_vma=self.check_vma)


@dataclass(frozen=True)
class Manual(ShardMapped):
    """The page's program."""

    page: ManualPage

    def local_loss(self, parameters: Tree, batch: Batch) -> jax.Array:
        """The page's."""
        return self.page.loss(self.network, parameters, batch)

    def local_loss_and_gradients(self, parameters: Tree, batch: Batch) -> tuple[jax.Array, Tree]:
        """The page's."""
        return self.page.loss_and_gradients(self.network, parameters, batch)

    def local_update(self, parameters: Tree, state: Any, gradients: Tree) -> tuple[Tree, Any]:
        """The page's, where it has one."""
        if self.page.update is None:
            return super().local_update(parameters, state, gradients)
        return self.page.update(self.network, self.optimize, parameters, state, gradients)
