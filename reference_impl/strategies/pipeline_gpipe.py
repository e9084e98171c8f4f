"""GPipe: the layers are cut into stages and microbatches flow through, all of them forward, then all of them backward.

    parameters       layers→stage
    gradients        layers→stage
    optimizer state  layers→stage
    batch            whole
    forward moves    collective-permute of activations over stage; all-reduce of metrics over stage
    step moves       collective-permute of activations over stage; all-reduce of gradients over stage;
                     all-reduce of metrics over stage

    stage 0  F0 F1 F2 F3 F4 F5 F6 F7 ·  ·  ·  ·  ·  ·  B7 B6 B5 B4 B3 B2 B1 B0
    stage 1  ·  F0 F1 F2 F3 F4 F5 F6 F7 ·  ·  ·  ·  B7 B6 B5 B4 B3 B2 B1 B0 ·
    stage 2  ·  ·  F0 F1 F2 F3 F4 F5 F6 F7 ·  ·  B7 B6 B5 B4 B3 B2 B1 B0 ·  ·
    stage 3  ·  ·  ·  F0 F1 F2 F3 F4 F5 F6 F7 B7 B6 B5 B4 B3 B2 B1 B0 ·  ·  ·

Parameters never move. In every tick each stage sends one microbatch's activation, or its gradient, to the next. With S
stages and M microbatches a stage is idle (S − 1)/(M + S − 1) of the time, and holds M activations. The input layer and
the head are replicated on every stage, though only the first and the last use them: their gradients are all-reduced.
A transformer's tied table is both: its gradient is the sum of what the first stage and the last one have of it (Huang
et al. 2019; Scaling book, "Pipelining").
"""

from __future__ import annotations

import jax
from jax.lax import psum

from meshproof.contract import Batch, Tree
from reference_impl.forms.pipeline import Pipeline
from reference_impl.mapping import Mapping
from reference_impl.models.layout import Layout
from reference_impl.models.staged import Staged
from reference_impl.page import Budget, Page, all_reduce, collective_permute
from reference_impl.shards import make_own, sum_of_own
from reference_impl.theory.schedules import Schedule, gpipe

TABLE = Page(
    name="pipeline_gpipe",
    compute=Mapping(layers="stage"),
    parameters=Mapping(layers="stage"),
    gradients=Mapping(layers="stage"),
    optimizer=Mapping(layers="stage"),
    communication=Budget(
        forward=[collective_permute("activations", over="stage"), all_reduce("metrics", over="stage")],
        step=[
            collective_permute("activations", over="stage"),
            all_reduce("gradients", over="stage"),
            all_reduce("metrics", over="stage"),
        ],
    ),
)


def loss(model: Staged, schedule: Schedule, parameters: Tree, batch: Batch, layout: Layout | None = None) -> jax.Array:
    """The loss of the last stage, on every stage."""
    own = make_own(parameters, model, TABLE.compute, ("stage",))
    return psum(Pipeline(model, schedule, layout or Layout()).run(own, batch)[0], "stage")


def loss_and_gradients(
    model: Staged, schedule: Schedule, parameters: Tree, batch: Batch, layout: Layout | None = None
) -> tuple[jax.Array, Tree]:
    """The loss, and the gradients: of a stage's own layers, and, summed over stages, of what is replicated on all."""
    own = make_own(parameters, model, TABLE.compute, ("stage",))
    value, gradients = Pipeline(model, schedule, layout or Layout()).run(own, batch)
    with jax.named_scope("synchronize_gradients"):
        return psum(value, "stage"), sum_of_own(gradients, model, TABLE.compute, ("stage",))


PAGE = TABLE.in_stages(gpipe, loss, loss_and_gradients)
