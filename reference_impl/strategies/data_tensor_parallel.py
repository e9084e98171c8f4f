"""Data and tensor parallel: tensor-sharded parameters, a data-sharded batch. Often taught, wrongly, as FSDP.

    parameters       mlp→model
    gradients        mlp→model
    optimizer state  mlp→model
    batch            batch→data
    forward moves    all-reduce of activations over model; all-reduce of metrics over data
    step moves       all-reduce of activations over model; all-reduce of gradients over data;
                     all-reduce of metrics over data

The tutorial "Data Parallel and Fully Sharded Data Parallel Training" builds this layout on ``data=2, model=4`` as
``FSDP_MLP``: its parameters are split over ``model`` and replicated over ``data``, so nothing is fully sharded over the
replicas and no parameter is gathered. Its kernels are all split by columns; here they alternate as Megatron's do,
which saves the gathers between them. "Distributed Training with Flax" means this layout for its layer of 8192 columns,
but never uses the shardings that it makes.
"""

from __future__ import annotations

from reference_impl.mapping import Mapping
from reference_impl.page import Budget, Page, all_reduce

PAGE = Page(
    name="data_tensor_parallel",
    compute=Mapping(batch="data", mlp="model"),
    parameters=Mapping(mlp="model"),
    gradients=Mapping(mlp="model"),
    optimizer=Mapping(mlp="model"),
    communication=Budget(
        forward=[all_reduce("activations", over="model"), all_reduce("metrics", over="data")],
        step=[
            all_reduce("activations", over="model"),
            all_reduce("gradients", over="data"),
            all_reduce("metrics", over="data"),
        ],
    ),
)
