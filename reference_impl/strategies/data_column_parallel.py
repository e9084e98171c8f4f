"""Data and tensor parallel with every kernel split by columns: simpler to write than pairs, and it moves more.

    parameters       outputs→model
    gradients        outputs→model
    optimizer state  outputs→model
    batch            batch→data
    forward moves    all-gather of activations over model; all-reduce of metrics over data
    step moves       all-gather of activations over model; reduce-scatter of activations over model;
                     all-reduce of gradients over data; all-reduce of metrics over data

The layout of ``FSDP_MLP`` in the tutorial "Data Parallel and Fully Sharded Data Parallel Training", to the letter: each
kernel P(None, model), each bias P(model), the last one whole. A column-parallel product leaves each device its own
columns, and the next kernel needs all of them: so every layer gathers its input, and its gradient is reduce-scattered.
Where columns and rows alternate (``data_tensor_parallel``) every second layer moves nothing. The tutorial's last kernel
has a single column, which four devices cannot split: its constraint is passed over without a word, and every device
holds the kernel whole. Here it has as many columns as divide.
"""

from __future__ import annotations

from reference_impl.mapping import Mapping
from reference_impl.page import Budget, Page, all_gather, all_reduce, reduce_scatter

PAGE = Page(
    name="data_column_parallel",
    compute=Mapping(batch="data", outputs="model"),
    parameters=Mapping(outputs="model"),
    gradients=Mapping(outputs="model"),
    optimizer=Mapping(outputs="model"),
    communication=Budget(
        forward=[all_gather("activations", over="model"), all_reduce("metrics", over="data")],
        step=[
            all_gather("activations", over="model"),
            reduce_scatter("activations", over="model"),
            all_reduce("gradients", over="data"),
            all_reduce("metrics", over="data"),
        ],
    ),
)
