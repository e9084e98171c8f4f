"""Tensor parallel (Megatron): every layer pair is split column-wise, then row-wise; activations move, never parameters.

    parameters       heads→model, mlp→model
    gradients        heads→model, mlp→model
    optimizer state  heads→model, mlp→model
    batch            whole
    forward moves    all-reduce of activations over model
    step moves       all-reduce of activations over model

Per pair one [B, D] all-reduce forward (the row-parallel products) and one backward (the gradient of the
column-parallel input). Attention is such a pair, split by its heads. Layers with neither axis are computed in full by
every device.
"""

from __future__ import annotations

from reference_impl.mapping import Mapping
from reference_impl.page import Budget, Page, all_reduce

PAGE = Page(
    name="tensor_parallel",
    compute=Mapping(heads="model", mlp="model"),
    parameters=Mapping(heads="model", mlp="model"),
    gradients=Mapping(heads="model", mlp="model"),
    optimizer=Mapping(heads="model", mlp="model"),
    communication=Budget(
        forward=[all_reduce("activations", over="model")],
        step=[all_reduce("activations", over="model")],
    ),
)
