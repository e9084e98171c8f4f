"""HSDP: FSDP within groups of devices, data parallelism between them.

    parameters       embed→data
    gradients        embed→data
    optimizer state  embed→data
    batch            batch→replica×data
    forward moves    all-gather of parameters over data; all-reduce of metrics over replica×data
    step moves       all-gather of parameters over data; reduce-scatter of gradients over data;
                     all-reduce of gradients over data; all-reduce of gradients over replica;
                     all-reduce of metrics over data; all-reduce of metrics over replica

Links within a group are fast, links between groups slow. Parameters never leave their group, and groups exchange only
shards of gradients that are already reduced within each group. Parameters without an ``embed`` axis are replicated,
and their gradients all-reduced over data (Zhao et al. 2023, "PyTorch FSDP").

From the layouts alone a compiler would reduce whole gradients over all devices at once. So the step computes each
group's gradients separately (``vmap`` over the groups), and averages them.
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
            all_reduce("gradients", over="replica", dtype="float32"),
            all_reduce("metrics", over="data"),
            all_reduce("metrics", over="replica"),
        ],
    ),
)


def loss_and_gradients(within: Callable[..., Any], parameters: Tree, batch: Batch, groups: int) -> tuple[Any, Tree]:
    """The mean over the groups of ``within``, applied to the examples of each."""
    shares = jax.tree.map(lambda x: x.reshape(groups, -1, *x.shape[1:]), dict(batch))
    each = jax.vmap(within, in_axes=(None, 0), spmd_axis_name="replica")(parameters, shares)
    return jax.tree.map(lambda x: x.mean(axis=0), each)


PAGE = TABLE.in_groups(WITHIN, loss_and_gradients)
