"""What each strategy must move, in bytes per device and step, from shapes alone.

A page lists its budget symbolically (``all_gather("parameters", over="data")``); `price` turns a line into bytes
for one model, batch and mesh. S, the priced size, is the one of the ring formulas: a ring of n sends S(n−1)/n for
an all-gather or reduce-scatter and 2S(n−1)/n for an all-reduce (Scaling book, "Sharded matrices").
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod

from meshproof.contract import Communication, Operation, leaves
from reference_impl.mapping import Axes, Mapping
from reference_impl.models.mlp import MLP

FLOAT32 = 4


@dataclass(frozen=True)
class Line:
    """One symbolic line of a page's budget: what moves, by which logical operation, over which mesh axis."""

    operation: Operation
    payload: str
    over: str


@dataclass(frozen=True)
class Budget:
    """A page's budget: the forward pass, and the whole train step."""

    forward: list[Line] = field(default_factory=list)
    step: list[Line] = field(default_factory=list)


def all_gather(payload: str, over: str) -> Line:
    """Every device gets the shards of all others."""
    return Line("all-gather", payload, over)


def all_reduce(payload: str, over: str) -> Line:
    """Every device gets the sum over all."""
    return Line("all-reduce", payload, over)


def reduce_scatter(payload: str, over: str) -> Line:
    """Every device gets its shard of the sum over all."""
    return Line("reduce-scatter", payload, over)


@dataclass(frozen=True)
class Traffic:
    """Prices the lines of one page: the mappings, on one model, mesh and global batch size."""

    model: MLP
    compute: Mapping
    parameters: Mapping
    mesh: dict[str, int]
    batch: int

    def price(self, lines: list[Line], backward: bool) -> tuple[Communication, ...]:
        """The lines in bytes; those that move nothing on this mesh (an axis of size 1) are left out."""
        priced = [
            Communication(line.operation, (line.over,), line.payload, self.bytes(line, backward)) for line in lines
        ]
        return tuple(line for line in priced if line.bytes and self.mesh[line.axes[0]] > 1)

    def bytes(self, line: Line, backward: bool) -> int:
        """The S of one line, per device and step."""
        if line.payload == "metrics":
            return FLOAT32
        if line.payload == "activations":
            return sum(self.activations(line.over, backward))
        scattered = line.operation in ("all-gather", "reduce-scatter")
        return sum(size for size, split in self.leaves(line.over) if split == scattered)

    def leaves(self, over: str) -> Iterator[tuple[int, bool]]:
        """Each parameter's bytes in use on a device, and whether the axis splits it at rest."""
        shapes = dict(leaves(self.model.shapes))
        for path, axes in _axes(self.model):
            in_use = self.compute.spec(axes)
            held = prod(shapes[path]) // prod(self.mesh[axis] for axis in in_use if axis is not None)
            yield held * FLOAT32, over in self.parameters.spec(axes) and over not in in_use

    def activations(self, over: str, backward: bool) -> Iterator[int]:
        """Megatron's pairs: a row-parallel product is reduced forward, a column-parallel input's gradient backward.

        The first layer's input needs no gradient.
        """
        rows = self.batch // self.mesh.get(self.compute.mesh_axis.get("batch", ""), 1)
        for i, (axes, shape) in enumerate(zip(self.model.layers.values(), self.model.shapes.values(), strict=True)):
            d, f = shape["kernel"]
            split = [self.compute.mesh_axis.get(axis) == over for axis in axes]
            if split[0]:
                yield rows * f * FLOAT32
            if split[1] and backward and i > 0:
                yield rows * d * FLOAT32


def _axes(model: MLP) -> Iterator[tuple[str, Axes]]:
    return ((f"{name}/{leaf}", axes) for name, layer in model.axes.items() for leaf, axes in layer.items())
