"""FSDP (ZeRO-3): every device keeps 1/N of everything and gathers a parameter just before its use.

    parameters       embed→data
    gradients        embed→data
    optimizer state  embed→data
    batch            batch→data
    forward moves    all-gather of parameters over data; all-reduce of metrics over data
    step moves       all-gather of parameters over data; reduce-scatter of gradients over data;
                     all-reduce of gradients over data; all-reduce of metrics over data

Parameters without an ``embed`` axis (the biases of the wide layers) are replicated, and their gradients all-reduced.
Otherwise all-gather and reduce-scatter together move what data parallelism's all-reduce moves (Scaling book, "FSDP").
"""

from __future__ import annotations

from reference_impl.mapping import Mapping
from reference_impl.page import Budget, Page, all_gather, all_reduce, reduce_scatter

PAGE = Page(
    name="fsdp",
    compute=Mapping(batch="data"),
    parameters=Mapping(embed="data"),
    gradients=Mapping(embed="data"),
    optimizer=Mapping(embed="data"),
    communication=Budget(
        forward=[all_gather("parameters", over="data"), all_reduce("metrics", over="data")],
        step=[
            all_gather("parameters", over="data"),
            reduce_scatter("gradients", over="data"),
            all_reduce("gradients", over="data"),
            all_reduce("metrics", over="data"),
        ],
    ),
)
