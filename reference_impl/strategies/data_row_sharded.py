"""Data parallel, with each array of a block at rest split by its first dimension over a second axis.

    parameters       first of embed→model, heads→model, mlp→model
    gradients        first of embed→model, heads→model, mlp→model
    optimizer state  first of embed→model, heads→model, mlp→model
    batch            batch→data
    forward moves    all-gather of parameters over model; all-reduce of metrics over data
    step moves       all-gather of parameters over model; all-reduce of gradients over data;
                     all-reduce of metrics over data

The layout of ``TransformerBlock`` in the tutorial on NNX, to the letter: kernels, biases, and the scales of norms are
P(model) each, whatever their first dimension means. That saves memory and no time: devices along ``model`` have the
same examples and compute alike. Here each gathers what it needs; where only storage is annotated, as there, XLA sums
partial products and gathers their gradients, more bytes with every token. Kernels split by pairs, as in
``fsdp_tensor_parallel``, share the work.
"""

from __future__ import annotations

from reference_impl.mapping import FirstDimension, Mapping
from reference_impl.page import Budget, Page, all_gather, all_reduce

ROWS = FirstDimension(embed="model", heads="model", mlp="model")

PAGE = Page(
    name="data_row_sharded",
    compute=Mapping(batch="data"),
    parameters=ROWS,
    gradients=ROWS,
    optimizer=ROWS,
    communication=Budget(
        forward=[all_gather("parameters", over="model"), all_reduce("metrics", over="data")],
        step=[
            all_gather("parameters", over="model"),
            all_reduce("gradients", over="data"),
            all_reduce("metrics", over="data"),
        ],
    ),
)
