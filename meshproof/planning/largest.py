"""The largest array of a program for each term of the formula: where the two part, which term it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import prod
from typing import Any

from meshproof.planning.arrays import Parameter
from meshproof.planning.layouts import Layout
from meshproof.planning.models import Model

IN_USE, LOGITS, SCORES, ACTIVATIONS = "parameters in use, or gradients", "logits", "scores of attention", "activations"


def largest(
    arrays: Iterable[Mapping[str, Any]], parameters: tuple[Parameter, ...], model: Model, layout: Layout
) -> Iterator[dict[str, Any]]:
    """Of a device's ``arrays`` (``dtype``, ``shape``, ``bytes``) the largest of each ``term``, the larger ones first.

    ``spelled`` is the array as HLO spells it.
    """
    named = set[str]()
    for array in sorted(arrays, key=lambda array: -array["bytes"]):
        term = term_of(tuple(array["shape"]), parameters, model, layout)
        if term not in named:
            named.add(term)
            spelled = f"{array['dtype']}[{','.join(map(str, array['shape']))}]"
            yield {**array, "spelled": spelled, "term": term}


def term_of(shape: tuple[int, ...], parameters: tuple[Parameter, ...], model: Model, layout: Layout) -> str:
    """The term that an array of this shape, of one device, is counted in."""
    if any(is_shard(shape, each, model, layout) for each in parameters):
        return IN_USE
    if model.length and sum(size == model.length for size in shape) >= 2:
        return SCORES
    if model.vocabulary and {model.vocabulary, model.vocabulary / layout.tensor} & {*shape}:
        return LOGITS
    return ACTIVATIONS


def is_shard(shape: tuple[int, ...], parameter: Parameter, model: Model, layout: Layout) -> bool:
    """Whether it is a parameter, or one of so many equal parts of it, of all its layers or of one."""
    layers = {1, parameter.layers or 1}
    parts = {1, layout.data, layout.tensor, layout.data * layout.tensor}
    widths = {1, *parameter.shape}
    known = {size // part for size in widths for part in parts if size % part == 0}
    known |= {prod(parameter.shape[first:]) for first in range(1, len(parameter.shape))}
    elements = {parameter.elements // layer // part for layer in layers for part in parts}
    tokens = model.length and model.length in shape and model.length not in parameter.shape
    return not tokens and prod(shape) in elements and {*shape} <= known
