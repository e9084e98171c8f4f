"""Data parallel by ``pmap``: one program runs on every device, on its own copy of everything and its own examples.

    parameters       whole
    gradients        whole
    optimizer state  whole
    batch            batch→data
    forward moves    all-reduce of metrics over data
    step moves       all-reduce of gradients over data; all-reduce of metrics over data

The footgun: a gradient inside ``pmap`` is this device's own, and nothing but the ``pmean`` keeps the copies equal.
Without it every device trains a model of its own, and no loss curve shows it. Metrics are summed with their counts
before they are divided: in a mean of the devices' means, the examples of a device that has few would weigh more.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax

from meshproof.contract import Batch
from reference_impl.evaluation import Totals
from reference_impl.page import LocalLoss
from reference_impl.strategies import data_parallel


def loss(local_loss: LocalLoss, parameters: Any, batch: Batch) -> jax.Array:
    """The mean of the devices' mean losses: their shares of the batch are equal."""
    with jax.named_scope("forward"):
        return jax.lax.pmean(local_loss(parameters, batch), "data")


def loss_and_gradients(local_loss: LocalLoss, parameters: Any, batch: Batch) -> tuple[jax.Array, Any]:
    """Every device's own loss and gradients, averaged once."""
    with jax.named_scope("forward"):
        own = jax.value_and_grad(local_loss)(parameters, batch)
    with jax.named_scope("synchronize_gradients"):
        return jax.lax.pmean(own, "data")


def evaluate(local_totals: Totals) -> Totals:
    """All devices' sums and counts."""
    return jax.lax.psum(local_totals, "data")


PAGE = replace(data_parallel.PAGE, name="data_parallel_pmap").by_pmap(loss, loss_and_gradients, evaluate)
