"""How a plan splits each array of a transformer: what a device keeps, by its sizes and the strategy alone.

The data axis splits the width D of what goes from layer to layer, and the tensor axis heads and hidden layers. An array
that has no such dimension is whole there: biases of heads and of the hidden layer for ZeRO; norms, biases of width D
and the table of tokens for tensor shards, which split positions where they split the sequence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from meshproof.planning.layouts import Layout
from meshproof.planning.memory import FLOAT32, Precision
from meshproof.planning.models import Model, PlanError
from meshproof.planning.reading import Shape, layers_of

TOKEN = 4
"""Bytes of a token, and of its label."""

FIELDS = ("x", "y")
"""Of a batch: tokens and labels, whatever an implementation calls them."""

Leaf = Mapping[str, Any]


@dataclass(frozen=True)
class Parameter:
    """A parameter, and over which axes of a plan it can be split.

    ``layers`` are those that it is of: 0 for one outside of them. ``data``: it has a dimension of width D, which ZeRO
    splits. ``tensor``: it has heads, hidden units, or positions of a sequence that is split.
    """

    path: str
    shape: Shape
    layers: int
    data: bool
    tensor: bool

    @property
    def elements(self) -> int:
        """In all."""
        return prod(self.shape)

    def ways(self, layout: Layout, least: int) -> int:
        """Devices that share it, in a kind of array that ZeRO splits from its stage ``least`` on."""
        pipeline = layout.pipeline if self.layers else 1
        return pipeline * self.tensor_ways(layout) * (layout.data if self.data and layout.zero >= least else 1)

    def tensor_ways(self, layout: Layout) -> int:
        """Tensor shards that share it."""
        return layout.tensor if self.tensor else 1


@dataclass(frozen=True)
class Disagreement:
    """An array that the program holds otherwise than planned; bytes of a device, ``spec`` as its sharding says it."""

    part: str
    path: str
    shape: Shape
    planned: int
    compiled: int
    spec: str

    def __str__(self) -> str:
        shape = f"[{', '.join(map(str, self.shape))}]"
        return (
            f"{self.part}: {self.path} {shape}: planned {self.planned:,} bytes of a device, the program has "
            f"{self.compiled:,}, sharded as {self.spec}"
        )


def splits_sequence(layout: Layout) -> bool:
    """Whether tensor shards split what goes from layer to layer by its positions; beside FSDP they hold it whole."""
    return layout.tensor > 1 and layout.zero < 3


def parameters_of(shapes: Mapping[str, Shape], model: Model, layout: Layout) -> tuple[Parameter, ...]:
    """Each parameter of a program by its shape. Raises `PlanError` where two sizes are one, and shapes do not tell."""
    split = layout.tensor > 1 or (layout.zero and layout.data > 1)
    alike = {"d_ff": model.d_ff, "the width of a head": model.d_model // (model.heads or 1)}
    for name, size in alike.items():
        if split and size == model.d_model:
            raise PlanError(f"{name} and d_model are both {size}: shapes do not tell which dimension is split")
    if splits_sequence(layout) and model.length == model.vocabulary:
        raise PlanError(f"a sequence and the vocabulary are both {model.length}: shapes do not tell which is split")
    count, layer, outside = layers_of(shapes)
    stacked = len(shapes) - len(outside) == len(layer)
    return tuple(
        outer(path, shape, model, layout)
        if path in outside
        else inner(path, shape, shape[1:] if stacked else shape, count if stacked else 1, model)
        for path, shape in shapes.items()
    )


def outer(path: str, shape: Shape, model: Model, layout: Layout) -> Parameter:
    """One outside of the layers: a table, or the last norm."""
    positions = len(shape) == 2 and shape[0] == model.length and splits_sequence(layout)
    return Parameter(path, shape, 0, model.d_model in shape, positions)


def inner(path: str, shape: Shape, own: Shape, layers: int, model: Model) -> Parameter:
    """One of a layer, or of so many stacked ones; ``own`` is its shape in each."""
    return Parameter(path, shape, layers, model.d_model in own, len(own) > 1 or model.d_model not in own)


def shapes_of(leaves: Sequence[Leaf]) -> dict[str, Shape]:
    """Of the parameters among a program's arguments."""
    return {leaf["path"]: tuple(leaf["shape"]) for leaf in leaves if leaf["part"] == "parameters"}


def planned_bytes(
    leaves: Sequence[Leaf], parameters: tuple[Parameter, ...], layout: Layout, precision: Precision, tokens: int
) -> Iterator[tuple[Leaf, int]]:
    """Each argument of more than one number beside its bytes of a device by the plan: 0 for one that it has not.

    Then the moments that it has and the program has not, as arguments of no bytes.
    """
    named = {each.path: each for each in parameters}
    due = Counter({each.shape: 0 for each in parameters})
    for each in parameters:
        due[each.shape] += precision.moments // FLOAT32
    fields = [leaf for leaf in leaves if leaf["part"] == "batch" and leaf["elements"] == tokens][: len(FIELDS)]
    for leaf in leaves:
        if leaf["elements"] == 1:
            continue
        if leaf["part"] == "parameters":
            each = named[leaf["path"]]
            yield leaf, each.elements * precision.parameter // each.ways(layout, 3)
        elif leaf["part"] == "batch":
            yield leaf, TOKEN * tokens // layout.ways if leaf in fields else 0
        elif due[tuple(leaf["shape"])]:
            due[tuple(leaf["shape"])] -= 1
            each = kept_for(leaf, parameters)
            yield leaf, each.elements * FLOAT32 // each.ways(layout, 1)
        else:
            yield leaf, 0
    for each in parameters:
        for _ in range(due.pop(each.shape, 0)):
            absent = {"part": "optimizer state", "path": f"a moment of {each.path}", "shape": each.shape}
            yield absent | {"bytes": 0, "spec": "no array"}, each.elements * FLOAT32 // each.ways(layout, 1)


def kept_for(leaf: Leaf, parameters: tuple[Parameter, ...]) -> Parameter:
    """The parameter that a moment is of: the one whose path ends its own, else one of its shape."""
    alike = [each for each in parameters if each.shape == tuple(leaf["shape"])]
    return max(alike, key=lambda each: len(each.path) * f"/{leaf['path']}".endswith(f"/{each.path}"))


def disagreements(planned: list[tuple[Leaf, int]]) -> list[Disagreement]:
    """Every array whose bytes are not those of the plan, those that differ by most first."""
    found = [
        Disagreement(leaf["part"], leaf["path"], tuple(leaf["shape"]), size, leaf["bytes"], leaf["spec"])
        for leaf, size in planned
        if leaf["bytes"] != size
    ]
    return sorted(found, key=lambda each: -abs(each.compiled - each.planned))
