"""ZeRO-1: data parallelism that keeps 1/N of the optimizer state on each device, and updates 1/N of the parameters.

    parameters       whole
    gradients        whole
    optimizer state  embed→data
    batch            batch→data
    forward moves    all-reduce of metrics over data
    step moves       all-reduce of gradients over data; all-gather of parameters over data;
                     all-reduce of metrics over data

The gradients are reduced as in data parallelism; each device updates its shard, and the updated shards are gathered.
Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", P_os.
"""

from __future__ import annotations

from reference_impl.mapping import Mapping
from reference_impl.page import Budget, Page, all_gather, all_reduce

PAGE = Page(
    name="zero1",
    compute=Mapping(batch="data"),
    parameters=Mapping(),
    gradients=Mapping(),
    optimizer=Mapping(embed="data"),
    communication=Budget(
        forward=[all_reduce("metrics", over="data")],
        step=[
            all_reduce("gradients", over="data"),
            all_gather("parameters", over="data", dtype="float32"),
            all_reduce("metrics", over="data"),
        ],
    ),
)
