"""3D parallel with FSDP in the data axis: of N pipelines each keeps 1/N of the parameters, and gathers the rest once.

    parameters       layers→stage, embed→data, heads→model, mlp→model
    gradients        layers→stage, embed→data, heads→model, mlp→model
    optimizer state  layers→stage, embed→data, heads→model, mlp→model
    batch            batch→data
    forward moves    all-gather of parameters over data; collective-permute of activations over stage;
                     all-reduce of activations over model; all-reduce of metrics over stage×data
    step moves       all-gather of parameters over data; collective-permute of activations over stage;
                     all-reduce of activations over model; reduce-scatter of gradients over data;
                     all-reduce of gradients over stage; all-reduce of gradients over data;
                     all-reduce of metrics over stage×data

    stage 0  F0 F1 F2 F3 F4 F5 F6 F7 ·  ·  B7 B6 B5 B4 B3 B2 B1 B0
    stage 1  ·  F0 F1 F2 F3 F4 F5 F6 F7 B7 B6 B5 B4 B3 B2 B1 B0 ·

Gathered before the first microbatch and scattered after the last, so the traffic does not grow with their number. But
a stage holds its own layers whole while it works: with one moment and two shards its peak is that of ``parallel_3d``.
Gradients of the input layer and the head are scattered over the shards, then summed over the stages. Biases without an
``embed`` axis are replicated over ``data``: the other all-reduces are of their gradients.
"""

from __future__ import annotations

import jax
from jax.lax import axis_size, psum

from meshproof.contract import Batch, Tree
from reference_impl.forms.pipeline import Pipeline
from reference_impl.mapping import Mapping
from reference_impl.models.staged import Staged
from reference_impl.page import Budget, Page, all_gather, all_reduce, collective_permute, reduce_scatter
from reference_impl.shards import Shards, make_own, sum_of_own
from reference_impl.strategies.parallel_3d import BOTH
from reference_impl.strategies.tensor_parallel_shard_map import Megatron
from reference_impl.theory.schedules import Schedule, gpipe

TABLE = Page(
    name="parallel_3d_fsdp",
    compute=Mapping(layers="stage", batch="data", heads="model", mlp="model"),
    parameters=Mapping(layers="stage", embed="data", heads="model", mlp="model"),
    gradients=Mapping(layers="stage", embed="data", heads="model", mlp="model"),
    optimizer=Mapping(layers="stage", embed="data", heads="model", mlp="model"),
    communication=Budget(
        forward=[
            all_gather("parameters", over="data"),
            collective_permute("activations", over="stage"),
            all_reduce("activations", over="model"),
            all_reduce("metrics", over=BOTH),
        ],
        step=[
            all_gather("parameters", over="data"),
            collective_permute("activations", over="stage"),
            all_reduce("activations", over="model"),
            reduce_scatter("gradients", over="data"),
            all_reduce("gradients", over="stage"),
            all_reduce("gradients", over="data"),
            all_reduce("metrics", over=BOTH),
        ],
    ),
)


def loss(model: Staged, schedule: Schedule, parameters: Tree, batch: Batch) -> jax.Array:
    """Gather, run the pipelines, average."""
    in_use = make_own(Shards(model, TABLE.parameters, "data").gather(parameters), model, TABLE.compute, ("stage",))
    return psum(Pipeline(model, schedule, Megatron()).run(in_use, batch)[0], BOTH) / axis_size("data")


def loss_and_gradients(model: Staged, schedule: Schedule, parameters: Tree, batch: Batch) -> tuple[jax.Array, Tree]:
    """Every pipeline's gradients of its whole parameters, averaged into shards, then summed over stages."""
    shards = Shards(model, TABLE.parameters, "data")
    in_use = make_own(shards.gather(parameters), model, TABLE.compute, ("stage",))
    value, gradients = Pipeline(model, schedule, Megatron()).run(in_use, batch)
    with jax.named_scope("synchronize_gradients"):
        scattered = sum_of_own(shards.scatter_mean(gradients), model, TABLE.compute, ("stage",))
        return psum(value, BOTH) / axis_size("data"), scattered


PAGE = TABLE.in_stages(gpipe, loss, loss_and_gradients)
