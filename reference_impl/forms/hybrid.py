"""Annotated strategies whose gradients are reduced within groups of devices before they are between them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial

import jax
from flax import nnx

from meshproof.contract import Batch, Tree
from reference_impl.forms.annotated import JaxForm
from reference_impl.forms.nnx_form import NnxForm
from reference_impl.page import HybridPage


@dataclass(frozen=True)
class Hybrid(JaxForm):
    """The groups are the devices along the mesh axis ``replica``."""

    page: HybridPage

    def loss_and_gradients(self, parameters: Tree, batch: Batch) -> tuple[jax.Array, Tree]:
        """The page's, over all groups; within a group the compiler reduces."""
        within = partial(self.differentiate, partial(self.loss_by, self.page.within))
        return self.page.loss_and_gradients(within, parameters, batch, self.mesh_axes["replica"])


@dataclass(frozen=True)
class NnxHybrid(NnxForm):
    """The same of NNX modules, which are merged again in each group."""

    page: HybridPage

    @cached_property
    def group(self) -> NnxForm:
        """What a group does by itself: the form whose compute mapping is the page's within a group."""
        return NnxForm(replace(self.page, compute=self.page.within), self.mesh_axes, self.optimizer, self.network)

    def loss_and_gradients(self, model: nnx.Module, batch: Batch) -> tuple[jax.Array, nnx.State]:
        """The page's, over all groups; within a group the compiler reduces."""
        graph, parameters, rest = nnx.split(model, nnx.Param, ...)

        def within(parameters: nnx.State, batch: Batch) -> tuple[jax.Array, nnx.State]:
            return self.group.loss_and_gradients(nnx.merge(graph, parameters, rest), batch)

        return self.page.loss_and_gradients(within, parameters, batch, self.mesh_axes["replica"])
