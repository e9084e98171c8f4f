"""Annotated strategies whose gradients are reduced within groups of devices before they are between them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import jax

from meshproof.contract import Batch, Tree
from reference_impl.forms.annotated import JaxForm
from reference_impl.page import HybridPage


@dataclass(frozen=True)
class Hybrid(JaxForm):
    """The groups are the devices along the mesh axis ``replica``."""

    page: HybridPage

    def loss_and_gradients(self, parameters: Tree, batch: Batch) -> tuple[jax.Array, Tree]:
        """The page's, over all groups; within a group the compiler reduces."""
        within = partial(self.differentiate, partial(self.loss_by, self.page.within))
        return self.page.loss_and_gradients(within, parameters, batch, self.mesh_axes["replica"])
