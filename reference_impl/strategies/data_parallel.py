"""Data parallel: every device keeps everything whole and sees 1/N of the batch; the gradients are summed.

    parameters       whole
    gradients        whole
    optimizer state  whole
    batch            batch→data
    forward moves    all-reduce of metrics over data
    step moves       all-reduce of gradients over data; all-reduce of metrics over data

The only traffic is each gradient byte once, backward (Scaling book, "Data parallelism").
"""

from __future__ import annotations

from reference_impl.mapping import Mapping
from reference_impl.page import Budget, Page, all_reduce

PAGE = Page(
    name="data_parallel",
    compute=Mapping(batch="data"),
    parameters=Mapping(),
    gradients=Mapping(),
    optimizer=Mapping(),
    communication=Budget(
        forward=[all_reduce("metrics", over="data")],
        step=[all_reduce("gradients", over="data"), all_reduce("metrics", over="data")],
    ),
)
