"""Data parallel with batch normalisation by ``pmap``, where a norm must be told of the other devices.

    parameters       whole
    gradients        whole
    optimizer state  whole
    batch            batch→data
    forward moves    all-reduce of statistics over data; all-reduce of metrics over data
    step moves       all-reduce of statistics over data; all-reduce of gradients over data;
                     all-reduce of metrics over data

The footgun: without ``axis_name`` a norm takes the mean over what it sees, which is this device's examples. The
gradients are averaged all the same, and the loss falls. But every device has running statistics of its own, and which
of them are saved and evaluated with is chance.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax

from meshproof.contract import Batch
from reference_impl.page import Local
from reference_impl.strategies import data_parallel_pmap, sync_batch_norm
from reference_impl.strategies.data_parallel_shard_map import average


def loss_and_gradients(local: Local, parameters: Any, batch: Batch) -> tuple[Any, Any]:
    """Every device's own loss and gradients, averaged once. The statistics beside the loss are equal already."""
    with jax.named_scope("forward"):
        (loss, kept), gradients = local.loss_and_gradients(parameters, batch)
    with jax.named_scope("synchronize_gradients"):
        loss, gradients = average((loss, gradients), local.count(batch))
    return (loss, kept), gradients


PAGE = replace(sync_batch_norm.PAGE, name="sync_batch_norm_pmap").by_pmap(
    data_parallel_pmap.loss, loss_and_gradients, data_parallel_pmap.evaluate
)
