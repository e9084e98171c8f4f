"""HSDP: FSDP within groups of devices, data parallelism between them.

    parameters       embed→data
    gradients        embed→data
    optimizer state  embed→data
    batch            batch→replica×data
    forward moves    all-gather of parameters over data; all-reduce of metrics over replica×data
    step moves       all-gather of parameters over data; reduce-scatter of gradients over data;
                     all-reduce of gradients over data; all-reduce of gradients over replica;
                     all-reduce of metrics over data; all-reduce of metrics over replica

A group's links are fast, those between groups slow: parameters never leave their group, and what the replicas exchange
is the shard of a gradient that is already reduced within its group. Parameters without an ``embed`` axis are whole in
every group, and theirs are the gradients all-reduced over data (Zhao et al. 2023, "PyTorch FSDP").

A compiler that is told the layouts alone reduces whole gradients over all devices at once. So the step says that each
group has gradients of its own, and that they are averaged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from meshproof.contract import Batch, Tree
from reference_impl.mapping import Mapping
from reference_impl.page import Budget, Page, all_gather, all_reduce, reduce_scatter

WITHIN = Mapping(batch="data")
"""The compute mapping of one group."""

TABLE = Page(
    name="hsdp",
    compute=Mapping(batch=("replica", "data")),
    parameters=Mapping(embed="data"),
    gradients=Mapping(embed="data"),
    optimizer=Mapping(embed="data"),
    communication=Budget(
        forward=[all_gather("parameters", over="data"), all_reduce("metrics", over=("replica", "data"))],
        step=[
            all_gather("parameters", over="data"),
            reduce_scatter("gradients", over="data"),
            all_reduce("gradients", over="data"),
            all_reduce("gradients", over="replica"),
            all_reduce("metrics", over="data"),
            all_reduce("metrics", over="replica"),
        ],
    ),
)


def loss_and_gradients(within: Callable[..., Any], parameters: Tree, batch: Batch, groups: int) -> tuple[Any, Tree]:
    """The mean over the groups of what ``within`` gives for the examples of each."""
    shares = jax.tree.map(lambda x: x.reshape(groups, -1, *x.shape[1:]), dict(batch))
    each = jax.vmap(within, in_axes=(None, 0), spmd_axis_name="replica")(parameters, shares)
    return jax.tree.map(lambda x: x.mean(axis=0), each)


PAGE = TABLE.in_groups(WITHIN, loss_and_gradients)
