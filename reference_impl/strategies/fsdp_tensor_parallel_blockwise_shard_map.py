"""FSDP and tensor parallel by hand, block by block: one layout gathers parameters and reduces activations.

    parameters       embed→data, heads→model, mlp→model
    gradients        embed→data, heads→model, mlp→model
    optimizer state  embed→data, heads→model, mlp→model
    batch            batch→data
    forward moves    all-gather of parameters over data; all-reduce of activations over model;
                     all-reduce of metrics over data
    step moves       all-gather of parameters over data; all-reduce of activations over model;
                     reduce-scatter of gradients over data; all-reduce of gradients over data;
                     all-reduce of metrics over data

The same table as ``fsdp_tensor_parallel``: ``fsdp_blockwise_shard_map``, whose blocks are split as in
``tensor_parallel_shard_map``.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from reference_impl.strategies import fsdp_tensor_parallel
from reference_impl.strategies.fsdp_blockwise_shard_map import Gathered, loss, loss_and_gradients
from reference_impl.strategies.tensor_parallel_shard_map import Megatron


class GatheredMegatron(Gathered, Megatron):
    """Gathers parameters wherever a model reshards them; f and g, where a kernel is split."""


LAYOUT = GatheredMegatron()

PAGE = replace(fsdp_tensor_parallel.PAGE, name="fsdp_tensor_parallel_blockwise_shard_map").by_hand(
    partial(loss, layout=LAYOUT), partial(loss_and_gradients, layout=LAYOUT)
)
