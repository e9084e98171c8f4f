"""3D parallel: data, tensor and pipeline parallelism, each on a mesh axis of its own.

    parameters       layers→stage, heads→model, mlp→model
    gradients        layers→stage, heads→model, mlp→model
    optimizer state  layers→stage, heads→model, mlp→model
    batch            batch→data
    forward moves    collective-permute of activations over stage; all-reduce of activations over model;
                     all-reduce of metrics over stage×data
    step moves       collective-permute of activations over stage; all-reduce of activations over model;
                     all-reduce of gradients over data; all-reduce of gradients over stage×data;
                     all-reduce of metrics over stage×data

    stage 0  F0 F1 F2 F3 F4 F5 F6 F7 ·  ·  B7 B6 B5 B4 B3 B2 B1 B0
    stage 1  ·  F0 F1 F2 F3 F4 F5 F6 F7 B7 B6 B5 B4 B3 B2 B1 B0 ·

Each data shard is a pipeline of its own, whose microbatches are of its own examples; once in a step the pipelines
average their gradients. Gradients of parameters that every stage holds are summed over the stages too.
"""

from __future__ import annotations

import jax
from jax.lax import axis_size, psum

from meshproof.contract import Batch, Tree
from reference_impl.forms.pipeline import Pipeline
from reference_impl.mapping import Mapping
from reference_impl.models.staged import Staged
from reference_impl.page import Budget, Page, all_reduce, collective_permute
from reference_impl.shards import make_own, sum_of_own
from reference_impl.strategies.tensor_parallel_shard_map import Megatron
from reference_impl.theory.schedules import Schedule, gpipe

BOTH = ("stage", "data")

TABLE = Page(
    name="parallel_3d",
    compute=Mapping(layers="stage", batch="data", heads="model", mlp="model"),
    parameters=Mapping(layers="stage", heads="model", mlp="model"),
    gradients=Mapping(layers="stage", heads="model", mlp="model"),
    optimizer=Mapping(layers="stage", heads="model", mlp="model"),
    communication=Budget(
        forward=[
            collective_permute("activations", over="stage"),
            all_reduce("activations", over="model"),
            all_reduce("metrics", over=BOTH),
        ],
        step=[
            collective_permute("activations", over="stage"),
            all_reduce("activations", over="model"),
            all_reduce("gradients", over="data"),
            all_reduce("gradients", over=BOTH),
            all_reduce("metrics", over=BOTH),
        ],
    ),
)


def loss(model: Staged, schedule: Schedule, parameters: Tree, batch: Batch) -> jax.Array:
    """The mean over the pipelines of the losses, which their last stages have."""
    own = make_own(parameters, model, TABLE.compute, BOTH)
    return psum(Pipeline(model, schedule, Megatron()).run(own, batch)[0], BOTH) / axis_size("data")


def loss_and_gradients(model: Staged, schedule: Schedule, parameters: Tree, batch: Batch) -> tuple[jax.Array, Tree]:
    """Every pipeline's own loss and gradients: summed over the stages, averaged over the pipelines."""
    own = make_own(parameters, model, TABLE.compute, BOTH)
    value, gradients = Pipeline(model, schedule, Megatron()).run(own, batch)
    with jax.named_scope("synchronize_gradients"):
        total = psum(value, BOTH), sum_of_own(gradients, model, TABLE.compute, BOTH)
        return jax.tree.map(lambda x: x / axis_size("data"), total)


PAGE = TABLE.in_stages(gpipe, loss, loss_and_gradients)
