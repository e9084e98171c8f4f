"""Manual strategies: the page's per-device program, run by ``jax.shard_map``; its collectives are the page's own."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import jax
from jax.sharding import PartitionSpec

from meshproof.contract import Batch, Tree
from reference_impl.forms.annotated import JaxForm
from reference_impl.forms.base import TrainState


class Manual(JaxForm):
    """The page holds ``loss`` and ``loss_and_gradients`` of ``(model, parameters, batch)`` as one device sees them."""

    explicit = True
    check_vma: ClassVar[bool] = True

    def forward(self, parameters: Tree, batch: Batch) -> jax.Array:
        """The page's loss on every device."""
        run = partial(self.page.loss, self.network)
        return self.per_device(run, self.argument_specs, PartitionSpec())(parameters, batch)

    def loss_and_gradients(self, parameters: Tree, batch: Batch) -> tuple[jax.Array, Tree]:
        """The page's loss and gradients on every device; gradients as the parameters lie."""
        run = partial(self.page.loss_and_gradients, self.network)
        out_specs = (PartitionSpec(), self.state_specs.parameters)
        return self.per_device(run, self.argument_specs, out_specs)(parameters, batch)

    @property
    def argument_specs(self) -> Any:
        """How the parameters and the batch lie."""
        return self.state_specs.parameters, self.batch_specs

    def update(self, state: TrainState, gradients: Tree) -> TrainState:
        """The optimizer on every device's own shards."""
        specs = self.state_specs
        return self.per_device(super().update, (specs, specs.parameters), specs)(state, gradients)

    def per_device(self, run: Any, in_specs: Any, out_specs: Any) -> Any:
        """``run`` in ``shard_map`` over the whole mesh."""
        return jax.shard_map(run, mesh=self.mesh, in_specs=in_specs, out_specs=out_specs, check_vma=self.check_vma)
