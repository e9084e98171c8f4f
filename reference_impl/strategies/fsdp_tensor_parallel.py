"""FSDP and tensor parallel: parameters are gathered over one mesh axis, activations reduced over the other.

    parameters       embed→data, heads→model, mlp→model
    gradients        embed→data, heads→model, mlp→model
    optimizer state  embed→data, heads→model, mlp→model
    batch            batch→data
    forward moves    all-gather of parameters over data; all-reduce of activations over model;
                     all-reduce of metrics over data
    step moves       all-gather of parameters over data; all-reduce of activations over model;
                     reduce-scatter of gradients over data; all-reduce of gradients over data;
                     all-reduce of metrics over data

Each axis makes the other's traffic smaller: a device gathers only its 1/model of a parameter, and reduces the
activations of only its 1/data of the batch (Scaling book, "Combining FSDP and tensor parallelism").
"""

from __future__ import annotations

from reference_impl.mapping import Mapping
from reference_impl.page import Budget, Page, all_gather, all_reduce, reduce_scatter

PAGE = Page(
    name="fsdp_tensor_parallel",
    compute=Mapping(batch="data", heads="model", mlp="model"),
    parameters=Mapping(embed="data", heads="model", mlp="model"),
    gradients=Mapping(embed="data", heads="model", mlp="model"),
    optimizer=Mapping(embed="data", heads="model", mlp="model"),
    communication=Budget(
        forward=[
            all_gather("parameters", over="data"),
            all_reduce("activations", over="model"),
            all_reduce("metrics", over="data"),
        ],
        step=[
            all_gather("parameters", over="data"),
            all_reduce("activations", over="model"),
            reduce_scatter("gradients", over="data"),
            all_reduce("gradients", over="data"),
            all_reduce("metrics", over="data"),
        ],
    ),
)
