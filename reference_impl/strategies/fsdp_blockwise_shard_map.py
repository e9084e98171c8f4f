"""FSDP by hand, block by block: parameters are gathered where they are used, gradients scattered where they arise.

    parameters       embed→data
    gradients        embed→data
    optimizer state  embed→data
    batch            batch→data
    forward moves    all-gather of parameters over data; all-reduce of metrics over data
    step moves       all-gather of parameters over data; reduce-scatter of gradients over data;
                     all-reduce of gradients over data; all-reduce of metrics over data

The same table as ``fsdp``. ``fsdp_shard_map`` gathers everything before it differentiates; here the gather is part of
what is differentiated, and the scatter its pullback. A rematerialised model gathers within each block, and gathers
again where the backward pass recomputes it: no block's parameters are held whole while another block runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import jax
from jax.lax import all_gather, psum, psum_scatter

from meshproof.contract import Batch, Tree
from reference_impl.compat import varying
from reference_impl.mapping import Axes
from reference_impl.models import Model
from reference_impl.models.layout import Layout
from reference_impl.strategies import fsdp


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def gather(shard: jax.Array, axes: Axes) -> jax.Array:
    """A whole parameter, as each device's own."""
    if "embed" not in axes:
        return varying(shard, "data")
    return all_gather(shard, "data", axis=axes.index("embed"), tiled=True)


def scatter(axes: Axes, _: None, gradient: jax.Array) -> tuple[jax.Array]:
    """Each device's shard of the sum of all devices' gradients; the whole sum, where the parameter is not split."""
    with jax.named_scope("synchronize_gradients"):
        if "embed" not in axes:
            return (psum(gradient, "data"),)
        return (psum_scatter(gradient, "data", scatter_dimension=axes.index("embed"), tiled=True),)


gather.defvjp(lambda shard, axes: (gather(shard, axes), None), scatter)


class Gathered(Layout):
    """Gathers parameters wherever a model reshards them."""

    def reshard(self, parameters: Mapping[str, Any], axes: Mapping[str, Any]) -> Any:
        """Each of them whole, as this device's own."""
        return jax.tree.map(gather, dict(parameters), dict(axes))


GATHERED = Gathered()


def loss(model: Model, parameters: Tree, batch: Batch, layout: Layout = GATHERED) -> jax.Array:
    """The mean over the examples of all devices."""
    with jax.named_scope("forward"):
        return psum(share(model, parameters, batch, layout), "data")


def loss_and_gradients(
    model: Model, parameters: Tree, batch: Batch, layout: Layout = GATHERED
) -> tuple[jax.Array, Tree]:
    """The sums of all devices' shares of the mean; those of the gradients are taken where these arise."""
    with jax.named_scope("forward"):
        own, gradients = model.value_and_grad(partial(share, model))(parameters, batch, layout)
    with jax.named_scope("synchronize_gradients"):
        return psum(own, "data"), gradients


def share(model: Model, parameters: Tree, batch: Batch, layout: Layout) -> jax.Array:
    """What this device's examples contribute to the mean over those of the devices along data."""
    count = model.count(batch)
    return model.loss(model.reshard(parameters, layout), batch, layout) * (count / psum(count, "data"))


PAGE = replace(fsdp.PAGE, name="fsdp_blockwise_shard_map").by_hand(loss, loss_and_gradients)
