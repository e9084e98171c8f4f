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

from dataclasses import replace
from typing import Any

from meshproof.contract import Tree
from reference_impl.models import Model
from reference_impl.page import Optimize
from reference_impl.shards import Shards
from reference_impl.strategies import zero1
from reference_impl.strategies.data_parallel_shard_map import loss, loss_and_gradients

TABLE = replace(zero1.PAGE, name="zero1_shard_map")


def update(model: Model, optimize: Optimize, parameters: Tree, state: Any, gradients: Tree) -> tuple[Tree, Any]:
    """Each device updates the shard whose optimizer state it holds; then all shards are gathered."""
    shards = Shards(model, TABLE.optimizer, "data")
    updated, state = optimize(shards.own(parameters), state, shards.own(gradients))
    return shards.gather_equal(updated), state


PAGE = TABLE.by_hand(loss, loss_and_gradients, update)
