"""What each mesh axis moves in a step, by operation, in bytes of a device: array by array, by the plan alone.

Not what an implementation's own budget says: one that gathers twice, and says so, does otherwise than planned.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from meshproof.planning.arrays import Parameter, splits_sequence
from meshproof.planning.layouts import Layout
from meshproof.planning.memory import FLOAT32, Precision
from meshproof.planning.models import Model

Lane = tuple[str, str]
"""A logical operation, and the plan's axis that it runs over."""

GATHERED, SUMMED = 2, 2
"""Blocks of a layer, attention and the hidden layer: each gathers what enters it and sums what leaves it, forward, and
the other way round backward. With recomputation all is gathered again, and summed but for the last."""


def lanes_of(
    parameters: tuple[Parameter, ...], model: Model, layout: Layout, batch: int, precision: Precision
) -> dict[Lane, int] | None:
    """Bytes of each operation over each axis. ``None`` for a pipeline, whose schedule an implementation chooses."""
    if layout.pipeline > 1:
        return None
    found: Counter[Lane] = Counter()
    for each in parameters:
        for lane, size in of_parameter(each, layout, precision):
            found[lane] += size
    if layout.zero == 3 and layout.recomputes and layout.data > 1:
        found["all-gather", "data"] -= ending_biases(parameters, model) * precision.moved
    for lane, size in of_activations(model, layout, batch, precision):
        found[lane] += size
    for axis in summed_axes(layout):
        found["all-reduce", axis] += FLOAT32
    return {lane: size for lane, size in found.items() if size}


def summed_axes(layout: Layout) -> Iterator[str]:
    """Axes whose devices have other tokens: they add up the loss, one number."""
    if layout.data > 1:
        yield "data"
    if layout.replica > 1:
        yield "replica"
    if splits_sequence(layout):
        yield "tensor"


def of_parameter(each: Parameter, layout: Layout, precision: Precision) -> Iterator[tuple[Lane, int]]:
    """A parameter's gradient, and where it is gathered the parameter.

    ZeRO-1 all-reduces gradients whole, and updates a shard of them. What ZeRO-1 and 2 gather is updated parameters, as
    wide as they rest. FSDP that recomputes gathers parameters of layers again.
    """
    elements = each.elements // each.tensor_ways(layout)
    if splits_sequence(layout) and not each.tensor:
        yield ("all-reduce", "tensor"), elements * precision.moved
    if layout.data > 1:
        scattered = each.data and layout.zero >= 2
        yield ("reduce-scatter" if scattered else "all-reduce", "data"), elements * precision.moved
        if each.data and layout.zero in (1, 2):
            yield ("all-gather", "data"), elements * precision.parameter
        if each.data and layout.zero == 3:
            times = 2 if layout.recomputes and each.layers else 1
            yield ("all-gather", "data"), times * elements * precision.moved
    if layout.replica > 1:
        shards = layout.data if each.data and layout.zero >= 2 else 1
        yield ("all-reduce", "replica"), elements // shards * precision.gradient


def ending_biases(parameters: tuple[Parameter, ...], model: Model) -> int:
    """Numbers of the bias that ends each layer, if its hidden layers have biases.

    It is not gathered again: the sum that it makes is the next layer's input, which was kept.
    """
    hidden = [each for each in parameters if each.layers and each.shape[-1:] == (model.d_ff,) and not each.data]
    return sum(each.layers for each in hidden) * model.d_model


def of_activations(model: Model, layout: Layout, batch: int, precision: Precision) -> Iterator[tuple[Lane, int]]:
    """What tensor shards exchange: [t, D] of each block, gathered and scattered, or all-reduced beside FSDP."""
    if layout.tensor == 1:
        return
    size = batch // layout.ways * model.d_model * precision.moved * (model.layers or 1)
    recomputed = 1 if layout.recomputes else 0
    sums = 2 * SUMMED + recomputed * (SUMMED - 1)
    if splits_sequence(layout):
        yield ("all-gather", "tensor"), (2 * GATHERED + recomputed * GATHERED) * size
        yield ("reduce-scatter", "tensor"), sums * size
    else:
        yield ("all-reduce", "tensor"), sums * size
