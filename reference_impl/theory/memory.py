"""What a step must hold on each device, in bytes, from shapes alone."""

from __future__ import annotations

from math import prod

from meshproof.contract import leaves
from reference_impl.mapping import Axes, Mapping
from reference_impl.models import Model

FLOAT32 = 4


def spared(model: Model, compute: Mapping, mesh: dict[str, int], batch: int) -> int | None:
    """The least bytes per device by which a step's peak is lower because it computes blocks anew; ``None`` if by none.

    Without that the backward pass starts with all that the gradients of all blocks' products depend on. With it that
    exists of one block at a time, and of the others only what entered them. But in the end either step holds all
    gradients: where they outweigh the activations, nothing is promised. What lies between the products is not counted,
    for a compiler may compute it anew unasked.
    """
    if not model.promises.get("rematerialises"):
        return None

    def held(elements: int, axes: Axes) -> int:
        return elements // prod(mesh[axis] for axis in compute.split(axes)) * FLOAT32

    rows = batch // model.promises.get("microbatches", 1)
    block = sum(held(rows * elements, ("batch", *axes)) for axes, elements in model.operands.items())
    logical = dict(leaves(model.axes))
    gradients = sum(held(prod(shape), logical[path]) for path, shape in leaves(model.shapes))
    least = len(model.segments) * block - max(block, gradients)
    return least if least > 0 else None
