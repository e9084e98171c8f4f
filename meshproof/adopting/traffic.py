"""What a program moves, as lines of a budget: the payload of every tensor, inferred from shapes and layouts.

A tensor that is reduced is a gradient where its shape on a device is that of a parameter in use, whole or as the part
that a scatter over other axes left of it. One that is gathered is a parameter where it is that of a shard at rest, of
the parameter or of its optimizer state. Scalars are metrics. All else is activations, and all that is exchanged or
permuted. (Sorted dimensions are compared, without those of one element: a compiler transposes as it likes.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain, combinations
from math import prod

from meshproof.adopting.seeing import Leaf
from meshproof.contract import Communication, Operation, Payload, spec_axes
from meshproof.hlo import Collective
from meshproof.measures.traffic import SLICED

WHOLE_NUMBERS = ("pred", "s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64")
"""Types of a program that no activation has."""

COMPLEX = ("c64", "c128")
"""Types in which gradients of two parameters move, of the real and of the imaginary part: a contract has no others."""

Moved = tuple[Collective, tuple[int, ...]]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Weight:
    """One parameter: where it is at rest, in use and updated, as mesh axes by dimension; its gradient's axes."""

    path: str
    shape: Shape
    itemsize: int
    rest: tuple[tuple[str, ...], ...]
    in_use: tuple[tuple[str, ...], ...]
    updated: tuple[tuple[str, ...], ...]

    @property
    def splits(self) -> tuple[tuple[tuple[str, ...], ...], ...]:
        """At rest, in use and updated."""
        return self.rest, self.in_use, self.updated

    def local(self, split: tuple[tuple[str, ...], ...], mesh: Mapping[str, int], less: Iterable[str] = ()) -> Shape:
        """Its shape on a device that holds it split so, but for the axes in ``less``."""
        left = set(less)
        return tuple(
            size // prod(mesh[axis] for axis in axes if axis not in left)
            for size, axes in zip(self.shape, split, strict=True)
        )


def weights(
    parameters: Mapping[str, Leaf], optimizer_state: Mapping[str, Leaf] | None, computed: Mapping[str, Leaf]
) -> list[Weight]:
    """Every parameter with its layouts. Of an optimizer's moments the one that is split the most counts."""
    found = []
    for path, leaf in parameters.items():
        moments = [
            moment
            for name, moment in (optimizer_state or {}).items()
            if (name == path or name.endswith(f"/{path}")) and moment.shape == leaf.shape
        ]
        moment = max(moments, key=lambda each: len(each.axes), default=leaf)
        in_use = computed.get(path, leaf)
        found.append(
            Weight(path, leaf.shape, leaf.itemsize, by_dimension(leaf), by_dimension(in_use), by_dimension(moment))
        )
    return found


def by_dimension(leaf: Leaf) -> tuple[tuple[str, ...], ...]:
    """The mesh axes of each dimension."""
    entries = [spec_axes((entry,)) for entry in leaf.spec]
    return (*entries, *[()] * (len(leaf.shape) - len(entries)))


def key(shape: Iterable[int]) -> Shape:
    """What is compared of a shape."""
    return tuple(sorted(size for size in shape if size != 1))


def subsets(axes: Iterable[str]) -> Iterable[tuple[str, ...]]:
    """Every choice of these axes."""
    ordered = sorted(set(axes))
    return chain.from_iterable(combinations(ordered, count) for count in range(len(ordered) + 1))


def gradient_shapes(weight: Weight, mesh: Mapping[str, int]) -> set[Shape]:
    """The shapes that its gradient can have on a device while it is reduced."""
    found = set()
    for split in (weight.in_use, weight.rest, weight.updated):
        for less in subsets(axis for axes in split for axis in axes):
            if not {axis for axes in weight.in_use for axis in axes} & set(less):
                found.add(key(weight.local(split, mesh, less)))
    return found


def shard_shapes(weight: Weight, over: set[str], mesh: Mapping[str, int], at_rest: bool = False) -> set[Shape]:
    """The shapes of the shards that are gathered over these axes, where it is so split: as they lie ``at_rest``, or
    after they were gathered over other axes, too."""
    found = set()
    for split in (weight.rest, weight.updated):
        axes = {axis for each in split for axis in each}
        if over <= axes:
            others = subsets(set() if at_rest else axes - over)
            found |= {key(weight.local(split, mesh, less)) for less in others}
    return found


def payload(
    entry: Collective, dimensions: Shape, of: list[Weight], mesh: Mapping[str, int], batch_axes: set[str]
) -> Payload:
    """What a tensor is. Ids, labels and masks that are gathered over an axis of the batch are examples: there, where
    parameters are stored in shards, activations do not move."""
    shape, over = key(dimensions), set(entry.axes)
    if entry.operation in ("all-reduce", "reduce-scatter"):
        may_be = entry.phase != "forward" or over <= batch_axes
        if may_be and shape and owners(shape, over, of, mesh, batch_axes):
            return "gradients"
        return "metrics" if is_metric(shape, over, batch_axes) else "activations"
    if entry.operation == "all-gather" and any(shape in shard_shapes(weight, over, mesh) for weight in of):
        return "parameters"
    stored = {axis for weight in of for axes in weight.rest for axis in axes}
    return "examples" if entry.dtype in WHOLE_NUMBERS and over <= batch_axes & stored else "activations"


def is_metric(shape: Shape, over: set[str], batch_axes: set[str]) -> bool:
    """Whether it is a scalar, or a vector of the whole batch, as each expert's share of it for a balancing loss."""
    return not shape or (len(shape) == 1 and over <= batch_axes)


def owners(
    shape: Shape, over: set[str], of: list[Weight], mesh: Mapping[str, int], batch_axes: set[str]
) -> list[Weight]:
    """The parameters whose gradient may be reduced over these axes with this shape.

    Over axes that split the batch as many elements will do, where no shape fits: a compiler reshapes too.
    """
    free = [weight for weight in of if not over & {axis for axes in weight.in_use for axis in axes}]
    fitting = [weight for weight in free if shape in gradient_shapes(weight, mesh)]
    if fitting or not over <= batch_axes:
        return fitting
    return [weight for weight in free if prod(shape) in {prod(each) for each in gradient_shapes(weight, mesh)}]


def gathered(moved: Iterable[Moved], leaf: Leaf, mesh: Mapping[str, int]) -> set[str]:
    """The axes over which shards of a parameter's own shape are gathered, of those that split it."""
    weight = Weight("", leaf.shape, leaf.itemsize, *[by_dimension(leaf)] * 3)
    return {
        axis
        for entry, dimensions in moved
        if entry.operation == "all-gather"
        if key(dimensions) in shard_shapes(weight, set(entry.axes), mesh)
        for axis in entry.axes
    }


def operation_of(entry: Collective, what: Payload, scattered: bool) -> Operation | None:
    """The operation of a budget; ``None`` for one that no budget can name.

    A reduction that a compiler wrote as all-reduce and slice is one of the two: the gradient's layout tells which.
    """
    if entry.operation == "reduce-scatter" and what == "gradients" and not scattered:
        sliced = entry.derived or entry.realized_as.endswith(SLICED)
        return "all-reduce" if sliced else "reduce-scatter"
    known: dict[str, Operation] = {
        "all-reduce": "all-reduce",
        "all-gather": "all-gather",
        "reduce-scatter": "reduce-scatter",
        "all-to-all": "all-to-all",
        "collective-permute": "collective-permute",
    }
    return known.get(entry.operation)


Lane = tuple[Operation, tuple[str, ...], Payload]


@dataclass(frozen=True)
class Seen:
    """What moved in a lane of the budget: of each tensor its compared shape, bytes in all, and how many there were.

    ``narrow``: what XLA:CPU moves as float32 has 16 bits.
    """

    lane: Lane
    shape: Shape
    bytes: int
    tensors: int
    narrow: bool = False


def sorted_out(
    moved: Iterable[Moved], of: list[Weight], mesh: Mapping[str, int], batch_axes: set[str], scattered: set[str]
) -> tuple[list[Seen], list[str]]:
    """What moved by lane and shape, and sentences on what no budget can say. ``scattered``: axes of gradients.

    Among groups of an axis's devices activations and examples may be exchanged, for a line can name a part of an axis,
    and nothing else: what is reduced there has several sums, and what is gathered is no whole parameter.
    """
    moved, found, unsaid = list(moved), [], []
    for entry, dimensions in moved:
        over = tuple(dict.fromkeys(axis.partition(":")[0] for axis in entry.axes))
        what = payload(replace(entry, axes=over), dimensions, of, mesh, batch_axes)
        if what == "gradients" and not scattered & set(over) and goes_back(entry, dimensions, moved, mesh):
            what = "activations"
        operation = operation_of(entry, what, bool(scattered & set(over)))
        sums = entry.operation in ("all-reduce", "reduce-scatter")
        groups = over != entry.axes and (sums or what not in ("activations", "examples"))
        if operation is None or entry.bytes is None or entry.tensors is None or groups:
            amount = "an unknown number of" if entry.bytes is None else f"{entry.bytes:,}"
            told = f"{entry.operation} over {'×'.join(entry.axes)} moves {amount} bytes, which no budget can say"
            told += " of groups of an axis's devices" * groups
            unsaid.append(f"{told}; both budgets are left out")
        else:
            narrow, parts = entry.widened == entry.bytes, 2 if what == "gradients" and entry.dtype in COMPLEX else 1
            shape, count = key(dimensions), parts * entry.tensors
            found.append(Seen((operation, entry.axes, what), shape, entry.bytes, count, narrow))
    return _as_gradients(found, of, mesh, batch_axes), [*dict.fromkeys(unsaid)]


def goes_back(entry: Collective, dimensions: Shape, moved: Iterable[Moved], mesh: Mapping[str, int]) -> bool:
    """Whether a reduce-scatter of the backward pass hands back the gradients of activations: as many are gathered over
    its axes before, as by a loss over the whole batch. (No gradient of parameters is scattered there.)"""
    return (entry.operation, entry.phase) == ("reduce-scatter", "backward") and any(
        (each.operation, each.axes) == ("all-gather", entry.axes)
        and each.phase != "backward"
        and prod(shard) * prod(mesh[axis.partition(":")[0]] for axis in each.axes) == prod(dimensions)
        for each, shard in moved
    )


def _as_gradients(seen: list[Seen], of: list[Weight], mesh: Mapping[str, int], batch_axes: set[str]) -> list[Seen]:
    """The same, where gradients of another shape have that of their parameter, as where a trainer computes with a
    kernel that it has reshaped (t5x): of as many elements, if none of that parameter's own shape is seen."""
    own = {each.shape for each in seen if each.lane[2] == "gradients"}

    def shape_of(each: Seen) -> Shape:
        owned = owners(each.shape, {axis.partition(":")[0] for axis in each.lane[1]}, of, mesh, batch_axes)
        shapes = {shape for weight in owned for shape in gradient_shapes(weight, mesh)}
        alike = {shape for shape in shapes if prod(shape) == prod(each.shape)}
        return alike.pop() if each.shape not in alike and len(alike) == 1 and not alike & own else each.shape

    return [replace(each, shape=shape_of(each)) if each.lane[2] == "gradients" else each for each in seen]


def vectors(seen: Iterable[Seen], forward: Iterable[Seen]) -> list[Seen]:
    """What a step moves, where a gradient that the forward pass moves too is no gradient but a vector of metrics."""
    found = []
    left = Counter[tuple[tuple[Operation, tuple[str, ...]], Shape]]()
    for each in forward:
        if each.lane[2] == "metrics" and each.shape:
            left[each.lane[:2], each.shape] += each.tensors
    for each in seen:
        alike = left[at := (each.lane[:2], each.shape)]
        if each.lane[2] == "gradients" and (taken := min(alike, each.tensors)):
            left[at] -= taken
            size = each.bytes // each.tensors
            found.append(Seen((*each.lane[:2], "metrics"), each.shape, taken * size, taken))
            each = replace(each, bytes=each.bytes - taken * size, tensors=each.tensors - taken)
        found.append(each)
    return [each for each in found if each.tensors]


def lines(seen: Iterable[Seen], half: str | None = None) -> tuple[Communication, ...]:
    """The budget of what was seen. Parameters that are gathered in 16 bits, of the type ``half``, are said to be, where
    nothing else is gathered beside them: in float32 they would take twice as long."""
    seen, sums = list(seen), dict[tuple[Lane, bool], int]()
    beside = {each.lane[:2] for each in seen if each.lane[2] != "parameters"}
    for each in seen:
        narrow = bool(half) and each.narrow and each.lane[0] == "all-gather" and each.lane[:2] not in beside
        sums[each.lane, narrow] = sums.get((each.lane, narrow), 0) + each.bytes // (1 + narrow)
    order = ("examples", "parameters", "activations", "gradients", "statistics", "metrics")
    ordered = sorted(sums.items(), key=lambda item: (order.index(item[0][0][2]), item[0]))
    return tuple(Communication(*lane, size, half if narrow else None) for (lane, narrow), size in ordered if size)
