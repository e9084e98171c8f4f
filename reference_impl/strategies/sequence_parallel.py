"""Sequence parallel (Megatron-SP): tensor parallelism whose residual stream is split along the sequence between blocks.

    parameters       heads→model, mlp→model, position→model
    gradients        heads→model, mlp→model, position→model
    optimizer state  heads→model, mlp→model, position→model
    batch            batch→data
    forward moves    all-gather of activations over model; reduce-scatter of activations over model;
                     all-reduce of metrics over model; all-reduce of metrics over data
    step moves       all-gather of activations over model; reduce-scatter of activations over model;
                     all-reduce of gradients over model; all-reduce of gradients over data;
                     all-reduce of metrics over model; all-reduce of metrics over data

Each of tensor parallelism's all-reduces becomes a reduce-scatter where a block ends and an all-gather where the next
begins: the same bytes, and norms and residuals are computed and stored once instead of by every device. A replicated
parameter then sees only this device's tokens, so its gradient is summed over model too: XLA reduces axis by axis
(Korthikanti et al. 2022, "Reducing Activation Recomputation in Large Transformer Models").
"""

from __future__ import annotations

from reference_impl.mapping import Mapping
from reference_impl.page import Budget, Page, all_gather, all_reduce, reduce_scatter

ACTIVATIONS = [all_gather("activations", over="model"), reduce_scatter("activations", over="model")]
METRICS = [all_reduce("metrics", over="model"), all_reduce("metrics", over="data")]

AT_REST = Mapping(heads="model", mlp="model", position="model")

PAGE = Page(
    name="sequence_parallel",
    compute=Mapping(batch="data", sequence="model", heads="model", mlp="model", position="model"),
    parameters=AT_REST,
    gradients=AT_REST,
    optimizer=AT_REST,
    communication=Budget(
        forward=[*ACTIVATIONS, *METRICS],
        step=[*ACTIVATIONS, all_reduce("gradients", over="model"), all_reduce("gradients", over="data"), *METRICS],
    ),
)
