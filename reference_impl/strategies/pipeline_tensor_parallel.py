"""Pipeline and tensor parallel: layers are cut into stages, and each layer of a stage over the devices of that stage.

    parameters       layers→stage, heads→model, mlp→model
    gradients        layers→stage, heads→model, mlp→model
    optimizer state  layers→stage, heads→model, mlp→model
    batch            whole
    forward moves    collective-permute of activations over stage; all-reduce of activations over model;
                     all-reduce of metrics over stage
    step moves       collective-permute of activations over stage; all-reduce of activations over model;
                     all-reduce of gradients over stage; all-reduce of metrics over stage

    stage 0  F0 F1 F2 F3 F4 F5 F6 F7 ·  ·  B7 B6 B5 B4 B3 B2 B1 B0
    stage 1  ·  F0 F1 F2 F3 F4 F5 F6 F7 B7 B6 B5 B4 B3 B2 B1 B0 ·

Tensor parallelism moves activations in every layer, pipelining only between stages: tensor parallelism belongs on the
fast links. Megatron's pair f and g stands around each pair of layers, and around the heads of a transformer, as in
``tensor_parallel_shard_map``. They communicate, so the schedule is GPipe's: in a branch that not all stages take, they
would deadlock.
"""

from __future__ import annotations

import jax

from meshproof.contract import Batch, Tree
from reference_impl.mapping import Mapping
from reference_impl.models.staged import Staged
from reference_impl.page import Budget, Page, all_reduce, collective_permute
from reference_impl.strategies import pipeline_gpipe
from reference_impl.strategies.tensor_parallel_shard_map import Megatron
from reference_impl.theory.schedules import Schedule, gpipe

TABLE = Page(
    name="pipeline_tensor_parallel",
    compute=Mapping(layers="stage", heads="model", mlp="model"),
    parameters=Mapping(layers="stage", heads="model", mlp="model"),
    gradients=Mapping(layers="stage", heads="model", mlp="model"),
    optimizer=Mapping(layers="stage", heads="model", mlp="model"),
    communication=Budget(
        forward=[
            collective_permute("activations", over="stage"),
            all_reduce("activations", over="model"),
            all_reduce("metrics", over="stage"),
        ],
        step=[
            collective_permute("activations", over="stage"),
            all_reduce("activations", over="model"),
            all_reduce("gradients", over="stage"),
            all_reduce("metrics", over="stage"),
        ],
    ),
)


def loss(model: Staged, schedule: Schedule, parameters: Tree, batch: Batch) -> jax.Array:
    """GPipe's, with split stages."""
    return pipeline_gpipe.loss(model, schedule, parameters, batch, Megatron())


def loss_and_gradients(model: Staged, schedule: Schedule, parameters: Tree, batch: Batch) -> tuple[jax.Array, Tree]:
    """GPipe's; the gradients of split parameters are those of this device's shard."""
    return pipeline_gpipe.loss_and_gradients(model, schedule, parameters, batch, Megatron())


PAGE = TABLE.in_stages(gpipe, loss, loss_and_gradients)
