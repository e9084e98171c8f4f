"""Annotated strategies whose gradients are reduced within groups of devices before they are between them."""

from __future__ import annotations

from functools import partial

import jax

from meshproof.contract import Batch, Tree
from reference_impl.forms.annotated import JaxForm


class Hybrid(JaxForm):
    """The page holds ``WITHIN``, the compute mapping of a group, and ``loss_and_gradients`` over all groups."""

    def loss_and_gradients(self, parameters: Tree, batch: Batch) -> tuple[jax.Array, Tree]:
        """The page's, of what one group computes."""
        within = partial(self.differentiate, partial(self.loss_by, self.page.WITHIN))
        return self.page.loss_and_gradients(within, parameters, batch, self.mesh_axes["replica"])  # type: ignore[no-any-return]
