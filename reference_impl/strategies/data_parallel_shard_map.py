"""Data parallel by hand: each device differentiates its own examples' mean loss, then the gradients are averaged.

    parameters       whole
    gradients        whole
    optimizer state  whole
    batch            batch→data
    forward moves    all-reduce of metrics over data
    step moves       all-reduce of gradients over data; all-reduce of metrics over data

The footgun: in ``shard_map`` the gradient of a replicated parameter arrives already *summed* over the axis, and a
``pmean`` behind it trains on the sum. The parameters are therefore made varying first; then the average is ours.
"""

from __future__ import annotations

import jax

from meshproof.contract import Batch, Tree
from reference_impl.compat import varying
from reference_impl.models import Model
from reference_impl.models.layout import Whole
from reference_impl.strategies.data_parallel import COMMUNICATION, COMPUTE, GRADIENTS, OPTIMIZER, PARAMETERS

__all__ = ["COMMUNICATION", "COMPUTE", "GRADIENTS", "OPTIMIZER", "PARAMETERS", "loss", "loss_and_gradients"]


def loss(model: Model, parameters: Tree, batch: Batch) -> jax.Array:
    """The mean of the devices' mean losses: their shares of the batch are equal."""
    with jax.named_scope("forward"):
        return jax.lax.pmean(model.loss(parameters, batch, Whole()), "data")


def loss_and_gradients(model: Model, parameters: Tree, batch: Batch) -> tuple[jax.Array, Tree]:
    """Every device's own loss and gradients, averaged once."""
    with jax.named_scope("forward"):
        own = jax.tree.map(lambda w: varying(w, "data"), parameters)
        local = jax.value_and_grad(model.loss)(own, batch, Whole())
    with jax.named_scope("synchronize_gradients"):
        return jax.lax.pmean(local, "data")
