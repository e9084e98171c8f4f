"""ZeRO-1 by hand: all-reduce the gradients, update the own shard of each parameter, all-gather what was updated.

    parameters       whole
    gradients        whole
    optimizer state  embed→data
    batch            batch→data
    forward moves    all-reduce of metrics over data
    step moves       all-reduce of gradients over data; all-gather of parameters over data;
                     all-reduce of metrics over data

The same table as ``zero1``. The loss and the gradients are data parallelism's; the difference is the update.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from meshproof.contract import Tree
from reference_impl.models import Model
from reference_impl.shards import Shards
from reference_impl.strategies.data_parallel_shard_map import loss, loss_and_gradients
from reference_impl.strategies.zero1 import COMMUNICATION, COMPUTE, GRADIENTS, OPTIMIZER, PARAMETERS

__all__ = [
    "COMMUNICATION",
    "COMPUTE",
    "GRADIENTS",
    "OPTIMIZER",
    "PARAMETERS",
    "loss",
    "loss_and_gradients",
    "update",
]


def update(
    model: Model, optimize: Callable[..., Any], parameters: Tree, state: Any, gradients: Tree
) -> tuple[Tree, Any]:
    """Each device updates what its optimizer state is for, and all of them gather it."""
    shards = Shards(model, OPTIMIZER, "data")
    updated, state = optimize(shards.own(parameters), state, shards.own(gradients))
    return shards.gather_equal(updated), state
