"""Expert parallel by hand: one all-to-all sends the tokens to their experts, another sends the results back.

    parameters       experts→expert
    gradients        experts→expert
    optimizer state  experts→expert
    batch            batch→expert
    forward moves    all-to-all of activations over expert; all-reduce of metrics over expert
    step moves       all-to-all of activations over expert; all-reduce of gradients over expert;
                     all-reduce of metrics over expert

Before dispatch a device has all experts' places for its own groups, after it its own experts' places for all groups:
the experts' dimension is split, the groups' concatenated. An all-to-all's transpose is the all-to-all back, so the
backward pass needs no line of its own. An expert's gradient is that of the sum of all devices' losses: like the
all-reduced ones, it is divided by their number.
"""

from __future__ import annotations

from dataclasses import replace

import jax
from jax.lax import all_to_all, pmean

from meshproof.contract import Batch, Tree
from reference_impl.models import Model
from reference_impl.models.layout import Layout
from reference_impl.shards import make_own, mean_of_own
from reference_impl.strategies import expert_parallel

TABLE = replace(expert_parallel.PAGE, name="expert_parallel_shard_map")


class Exchange(Layout):
    """Dispatch and combine are all-to-alls."""

    def dispatch(self, x_GxExPxM: jax.Array) -> jax.Array:
        """Every expert's places for this device's groups, to this device's experts' places for every group."""
        return all_to_all(x_GxExPxM, "expert", split_axis=1, concat_axis=0, tiled=True)

    def combine(self, y_GxExPxM: jax.Array) -> jax.Array:
        """Its experts' places for every group, to every expert's places for this device's groups."""
        return all_to_all(y_GxExPxM, "expert", split_axis=0, concat_axis=1, tiled=True)


def loss(model: Model, parameters: Tree, batch: Batch) -> jax.Array:
    """The mean of the devices' mean losses: their shares of the batch are equal."""
    with jax.named_scope("forward"):
        return pmean(model.loss(parameters, batch, Exchange()), "expert")


def loss_and_gradients(model: Model, parameters: Tree, batch: Batch) -> tuple[jax.Array, Tree]:
    """The mean loss; the gradients of this device's experts and, summed once, of what is replicated."""
    with jax.named_scope("forward"):
        own = make_own(parameters, model, TABLE.compute, ("expert",))
        local_loss, gradients = jax.value_and_grad(model.loss)(own, batch, Exchange())
    with jax.named_scope("synchronize_gradients"):
        return pmean(local_loss, "expert"), mean_of_own(gradients, model, TABLE.compute, ("expert",))


PAGE = TABLE.by_hand(loss, loss_and_gradients)
