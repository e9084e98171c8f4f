"""Data parallel by ``pmap``: one program runs on every device, on its own copy of everything and its own examples.

    parameters       whole
    gradients        whole
    optimizer state  whole
    batch            batch→data
    forward moves    all-reduce of metrics over data
    step moves       all-reduce of gradients over data; all-reduce of metrics over data

The footgun: a gradient inside ``pmap`` is this device's own, and nothing but its ``psum`` keeps the copies equal.
Without it every device trains a model of its own, and no loss curve shows it. What is averaged is summed with its count
before it is divided: in ``pmean``, the mean of the devices' means, the examples of a device that has few weigh more.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax

from meshproof.contract import Batch
from reference_impl.evaluation import Totals
from reference_impl.page import Local
from reference_impl.strategies import data_parallel
from reference_impl.strategies.data_parallel_shard_map import average


def loss(local: Local, parameters: Any, batch: Batch) -> jax.Array:
    """The mean over the examples of all devices."""
    with jax.named_scope("forward"):
        return average(local.loss(parameters, batch), local.count(batch))


def loss_and_gradients(local: Local, parameters: Any, batch: Batch) -> tuple[jax.Array, Any]:
    """Every device's own loss and gradients, averaged once."""
    with jax.named_scope("forward"):
        own = local.loss_and_gradients(parameters, batch)
    with jax.named_scope("synchronize_gradients"):
        return average(own, local.count(batch))


def evaluate(local_totals: Totals) -> Totals:
    """All devices' sums and counts."""
    return jax.lax.psum(local_totals, "data")


PAGE = replace(data_parallel.PAGE, name="data_parallel_pmap").by_pmap(loss, loss_and_gradients, evaluate)
