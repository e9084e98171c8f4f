"""3D parallel with FSDP in the data axis: of N pipelines each keeps 1/N of the parameters, and gathers the rest once.

    parameters       layers→stage, embed→data, mlp→model
    gradients        layers→stage, embed→data, mlp→model
    optimizer state  layers→stage, embed→data, mlp→model
    batch            batch→data
    forward moves    all-gather of parameters over data; collective-permute of activations over stage;
                     all-reduce of activations over model; all-reduce of metrics over stage×data
    step moves       all-gather of parameters over data; collective-permute of activations over stage;
                     all-reduce of activations over model; reduce-scatter of gradients over data;
                     all-reduce of gradients over stage; all-reduce of gradients over data;
                     all-reduce of gradients over stage×data; all-reduce of metrics over stage×data

    stage 0  F0 F1 F2 F3 F4 F5 F6 F7 ·  ·  B7 B6 B5 B4 B3 B2 B1 B0
    stage 1  ·  F0 F1 F2 F3 F4 F5 F6 F7 B7 B6 B5 B4 B3 B2 B1 B0 ·

Gathered before the first microbatch and scattered behind the last, so the traffic does not grow with their number. But
a stage holds its own layers whole while it works: with one moment and two shards its peak is that of ``parallel_3d``.
The input layer and the head are scattered over the shards, then summed over the stages. Biases without an ``embed``
axis stay whole: theirs are the other all-reduces.
"""

from __future__ import annotations

import jax
from jax.lax import all_gather, axis_size, psum, psum_scatter

from meshproof.contract import Batch, Tree
from reference_impl.compat import varying
from reference_impl.forms.pipeline import Pipeline
from reference_impl.mapping import Axes, Mapping
from reference_impl.models.stacked_mlp import StackedMLP
from reference_impl.strategies.parallel_3d import mean, missing
from reference_impl.strategies.pipeline_tensor_parallel import Megatron
from reference_impl.theory import communication
from reference_impl.theory.communication import Budget, all_reduce, collective_permute, reduce_scatter
from reference_impl.theory.schedules import Schedule, gpipe

COMPUTE = Mapping(layers="stage", batch="data", mlp="model")
PARAMETERS = Mapping(layers="stage", embed="data", mlp="model")
GRADIENTS = PARAMETERS
OPTIMIZER = Mapping(layers="stage", embed="data", mlp="model")

COMMUNICATION = Budget(
    forward=[
        communication.all_gather("parameters", over="data"),
        collective_permute("activations", over="stage"),
        all_reduce("activations", over="model"),
        all_reduce("metrics", over=("stage", "data")),
    ],
    step=[
        communication.all_gather("parameters", over="data"),
        collective_permute("activations", over="stage"),
        all_reduce("activations", over="model"),
        reduce_scatter("gradients", over="data"),
        all_reduce("gradients", over="stage"),
        all_reduce("gradients", over="data"),
        all_reduce("gradients", over=("stage", "data")),
        all_reduce("metrics", over=("stage", "data")),
    ],
)

make_schedule = gpipe


def loss(model: StackedMLP, schedule: Schedule, parameters: Tree, batch: Batch) -> jax.Array:
    """Gather, run the pipelines, average."""
    whole = jax.tree.map(gather, dict(parameters), model.axes)
    return mean(Pipeline(model, schedule, Megatron()).run(whole, batch)[0], ("stage", "data"))


def loss_and_gradients(model: StackedMLP, schedule: Schedule, parameters: Tree, batch: Batch) -> tuple[jax.Array, Tree]:
    """Every pipeline's gradients of its whole parameters, averaged into each device's shard."""
    whole = jax.tree.map(gather, dict(parameters), model.axes)
    value, gradients = Pipeline(model, schedule, Megatron()).run(whole, batch)
    with jax.named_scope("synchronize_gradients"):
        return mean(value, ("stage", "data")), jax.tree.map(scatter_mean, gradients, model.axes)


def gather(shard: jax.Array, axes: Axes) -> jax.Array:
    """This device's copy of a parameter that is whole but for its stage and its columns or rows."""
    if "embed" not in axes:
        return varying(shard, missing(axes))
    whole = all_gather(shard, "data", axis=axes.index("embed"), tiled=True)
    return whole if "layers" in axes else varying(whole, "stage")


def scatter_mean(gradient: jax.Array, axes: Axes) -> jax.Array:
    """This device's shard of the mean gradient."""
    if "embed" not in axes:
        return mean(gradient, missing(axes))
    total = psum_scatter(gradient, "data", scatter_dimension=axes.index("embed"), tiled=True) / axis_size("data")
    return total if "layers" in axes else psum(total, "stage")
