"""Manual strategies: the page's per-device program, run by ``jax.shard_map``; its collectives are the page's own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import jax
from jax.sharding import PartitionSpec

from meshproof.contract import Batch, Tree
from reference_impl.forms.annotated import JaxForm
from reference_impl.forms.base import OnMesh, TrainState


@dataclass(frozen=True)
class Manual(JaxForm):
    """The page holds ``loss`` and ``loss_and_gradients`` of ``(model, parameters, batch)`` as one device sees them.

    ``check_vma`` is that of ``shard_map``: whether JAX tracks what varies over which mesh axes.
    """

    check_vma: bool = True

    explicit: ClassVar[bool] = True

    @property
    def unchecked_gradients(self) -> OnMesh:
        """`gradients`, where JAX does not check what varies from device to device, and transposes nothing by it."""
        return replace(self, check_vma=False).gradients if self.check_vma else self.gradients

    def forward(self, parameters: Tree, batch: Batch) -> jax.Array:
        """The page's loss on every device."""
        run = partial(self.page.loss, self.network)
        return self.per_device(run, self.argument_specs, PartitionSpec())(parameters, batch)

    def loss_and_gradients(self, parameters: Tree, batch: Batch) -> tuple[jax.Array, Tree]:
        """The page's loss and gradients on every device."""
        run = partial(self.page.loss_and_gradients, self.network)
        out_specs = (PartitionSpec(), self.page.GRADIENTS.specs(self.network.axes))
        return self.per_device(run, self.argument_specs, out_specs)(parameters, batch)

    @property
    def argument_specs(self) -> Any:
        """How the parameters and the batch lie."""
        return self.state_specs.parameters, self.batch_specs

    def update(self, state: TrainState, gradients: Tree) -> TrainState:
        """The optimizer on every device's own shards; the page's own, where it says otherwise."""
        specs = self.state_specs
        in_specs = (specs.parameters, specs.optimizer, self.page.GRADIENTS.specs(self.network.axes))
        run = partial(self.page.update, self.network, self.optimize) if hasattr(self.page, "update") else self.optimize
        with jax.named_scope("optimizer"):
            return TrainState(*self.per_device(run, in_specs, tuple(specs))(*state, gradients))

    def per_device(self, run: Any, in_specs: Any, out_specs: Any) -> Any:
        """``run`` in ``shard_map`` over the whole mesh."""
        return jax.shard_map(run, mesh=self.mesh, in_specs=in_specs, out_specs=out_specs, check_vma=self.check_vma)
