"""ZeRO-2: ZeRO-1 that also keeps only 1/N of each gradient on a device, the shard whose optimizer state it holds.

    parameters       whole
    gradients        embed→data
    optimizer state  embed→data
    batch            batch→data
    forward moves    all-reduce of metrics over data
    step moves       reduce-scatter of gradients over data; all-reduce of gradients over data;
                     all-gather of parameters over data; all-reduce of metrics over data

Gradients are reduce-scattered, updated parameters gathered: together the bytes of data parallelism's all-reduce.
Parameters without an ``embed`` axis are not split, and their gradients are all-reduced. Rajbhandari et al. 2020,
"ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", P_os+g.
"""

from __future__ import annotations

from reference_impl.mapping import Mapping
from reference_impl.page import Budget, Page, all_gather, all_reduce, reduce_scatter

PAGE = Page(
    name="zero2",
    compute=Mapping(batch="data"),
    parameters=Mapping(),
    gradients=Mapping(embed="data"),
    optimizer=Mapping(embed="data"),
    communication=Budget(
        forward=[all_reduce("metrics", over="data")],
        step=[
            reduce_scatter("gradients", over="data"),
            all_reduce("gradients", over="data"),
            all_gather("parameters", over="data", dtype="float32"),
            all_reduce("metrics", over="data"),
        ],
    ),
)
