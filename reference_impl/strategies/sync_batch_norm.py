"""Data parallel with batch normalisation: mean and variance are those of the examples of all devices.

    parameters       whole
    gradients        whole
    optimizer state  whole
    batch            batch→data
    forward moves    all-reduce of statistics over data; all-reduce of metrics over data
    step moves       all-reduce of statistics over data; all-reduce of gradients over data;
                     all-reduce of metrics over data

Normalised by the statistics of a device's own examples it is another network, one for each number of devices. Under
``jit`` nothing is written for that: a mean over a batch that is split is one over the whole batch, and the compiler
adds the devices' sums. The running averages of both statistics, which only evaluation reads, are equal on all devices.
"""

from __future__ import annotations

from dataclasses import replace

from reference_impl.page import Budget, all_reduce
from reference_impl.strategies import data_parallel

STATISTICS = all_reduce("statistics", over="data")
"""The mean and the variance of each channel, and in the backward pass their gradients."""

PAGE = replace(
    data_parallel.PAGE,
    name="sync_batch_norm",
    communication=Budget(
        forward=[STATISTICS, *data_parallel.PAGE.communication.forward],
        step=[STATISTICS, *data_parallel.PAGE.communication.step],
    ),
)
