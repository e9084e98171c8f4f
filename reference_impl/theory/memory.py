"""What a step must hold on each device, in bytes, from shapes alone."""

from __future__ import annotations

from math import prod

from meshproof.contract import leaves
from reference_impl.mapping import Axes, Mapping
from reference_impl.models import Model

FLOAT32 = 4


def spared(model: Model, compute: Mapping, mesh: dict[str, int], batch: int) -> int | None:
    """The bytes per device by which recomputing blocks lowers a step's peak, at least; ``None`` where it does not.

    Without recomputation the backward pass starts with the operands of all blocks' products. With it the operands of
    one block at a time exist, and the inputs of the others. Both steps end with all gradients: where these are larger
    than the activations, nothing is promised. What stands between the products is not counted, because a compiler may
    recompute it unasked.
    """
    if not model.promises.get("rematerialises"):
        return None

    def held(elements: int, axes: Axes) -> int:
        return elements // prod(mesh[axis] for axis in compute.split(axes)) * FLOAT32

    rows = batch // model.promises.get("microbatches", 1)
    block = sum(held(rows * elements, ("batch", *axes)) for axes, elements in model.operands.items())
    logical = dict(leaves(model.axes))
    gradients = sum(held(prod(shape), logical[path]) for path, shape in leaves(model.shapes))
    least = model.depth * block - max(block, gradients)
    return least if least > 0 else None
