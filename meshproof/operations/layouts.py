"""The layouts of an operation: every mesh, kind of axes and ``PartitionSpec`` of every operand, or a covering of them.

Generated without JAX. A covering has every pair of choices that two different parts of a layout can make (the mesh, the
kind of its axes, the dimension of each operand that each mesh axis splits), and every whole spec of every operand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations, product
from math import prod

import numpy as np

MESHES = ((8,), (2, 4), (4, 2), (1, 8), (8, 1))
"""Shapes of meshes of eight devices, degenerate ones included."""

ALIGNED = MESHES[1:3]
"""Those on which a layout that JAX refuses on explicit axes has another in its place."""

AXES = ("a", "b")
AXIS_TYPES = ("Auto", "Explicit")

MOST = 1500
"""Layouts of one operation from which a covering is chosen, and which ``--exhaustive`` runs, at most."""

Spec = tuple[tuple[str, ...], ...]
"""The mesh axes of each dimension, major first; empty for one that is not split."""

Shapes = Sequence[tuple[int, ...]]


@dataclass(frozen=True)
class Layout:
    """A mesh, the kind of its axes, and where each operand is; on automatic axes also where the result must be."""

    mesh: tuple[int, ...]
    axis_type: str
    specs: tuple[Spec, ...]
    result: Spec | None = None

    @property
    def axes(self) -> dict[str, int]:
        """The size of each mesh axis by its name."""
        return dict(zip(AXES, self.mesh, strict=False))

    @property
    def splits(self) -> bool:
        """Whether an axis of several devices splits an operand."""
        return any(self.axes[axis] > 1 for spec in self.specs for names in spec for axis in names)

    @property
    def name(self) -> str:
        """As ``a=2,b=4 Auto: P('a', None) P('b') -> P('b', None)``."""
        mesh = ",".join(f"{axis}={size}" for axis, size in self.axes.items())
        result = "" if self.result is None else f" -> {spelled(self.result)}"
        return f"{mesh} {self.axis_type}: {' '.join(map(spelled, self.specs))}{result}"


def entries_of(spec: Spec) -> list[str | tuple[str, ...] | None]:
    """What ``PartitionSpec`` takes."""
    return [axes[0] if len(axes) == 1 else axes or None for axes in spec]


def spelled(spec: Spec) -> str:
    """A spec as JAX's users write it."""
    return f"P({', '.join(map(repr, entries_of(spec)))})"


def specs_of(shape: tuple[int, ...], mesh: tuple[int, ...]) -> Iterator[Spec]:
    """Every spec by which the mesh divides an array of that shape: each axis splits one dimension, or none."""
    axes = dict(zip(AXES, mesh, strict=False))
    for places in product([None, *range(len(shape))], repeat=len(axes)):
        orders = permutations(zip(axes, places, strict=True))
        for spec in dict.fromkeys(_placed(order, len(shape)) for order in orders):
            if all(size % prod(axes[axis] for axis in names) == 0 for size, names in zip(shape, spec, strict=True)):
                yield spec


def _placed(order: Iterable[tuple[str, int | None]], rank: int) -> Spec:
    order = list(order)
    return tuple(tuple(axis for axis, place in order if place == dimension) for dimension in range(rank))


def every_layout(shapes: Shapes, result: tuple[int, ...]) -> list[Layout]:
    """Every layout of operands of these shapes, and of a result of that one.

    Where these are more than `MOST`, so many of them, drawn with a fixed seed: every spec of every operand on every
    mesh, and whatever else there is room for.
    """
    choices = [
        (mesh, kind, [list(specs_of(shape, mesh)) for shape in (*shapes, *[result] * (kind == "Auto"))])
        for mesh in MESHES
        for kind in AXIS_TYPES
    ]
    total = sum(prod(map(len, own)) for *_, own in choices)
    if total <= MOST:
        return [_layout(mesh, kind, specs, shapes) for mesh, kind, own in choices for specs in product(*own)]
    draws, found = np.random.default_rng(0), dict[Layout, None]()
    for mesh, kind, own in choices:
        for place, each in enumerate(own):
            for spec in each:
                others = [other[draws.integers(len(other))] for other in own]
                found[_layout(mesh, kind, (*others[:place], spec, *others[place + 1 :]), shapes)] = None
    for mesh, kind, own in choices:
        for _ in range(round((MOST - len(found)) * prod(map(len, own)) / total)):
            found[_layout(mesh, kind, tuple(each[draws.integers(len(each))] for each in own), shapes)] = None
    return list(found)


def aligned(shapes: Shapes) -> Iterator[Layout]:
    """Explicit layouts that JAX refuses less often than others: each mesh axis splits the first dimension of one
    length, or the last, of every operand, or of the first operand alone. Those that use both axes come first."""
    lengths = [*dict.fromkeys(size for shape in shapes for size in shape)]
    pairs = sorted(product([*lengths, None], repeat=len(AXES)), key=lambda pair: pair.count(None))
    found = dict[Layout, None]()
    for pair, mesh, last, alone in product(pairs, ALIGNED, (False, True), (False, True)):
        own = [_split_at(shape, () if alone and place else pair, last) for place, shape in enumerate(shapes)]
        sizes = dict(zip(AXES, mesh, strict=True))
        if any(map(any, own)) and all(
            size % prod(sizes[axis] for axis in names) == 0
            for shape, spec in zip(shapes, own, strict=True)
            for size, names in zip(shape, spec, strict=True)
        ):
            found[Layout(mesh, "Explicit", tuple(own))] = None
    yield from found


def _split_at(shape: tuple[int, ...], lengths: Sequence[int | None], last: bool) -> Spec:
    """The spec by which each axis splits the first dimension of its length, or the last."""
    order = range(len(shape))[:: -1 if last else 1]
    places = [next((place for place in order if shape[place] == length), None) for length in lengths]
    return _placed(zip(AXES, places, strict=False), len(shape))


def _layout(mesh: tuple[int, ...], kind: str, specs: tuple[Spec, ...], shapes: Shapes) -> Layout:
    own = len(shapes)
    return Layout(mesh, kind, specs[:own], specs[own] if len(specs) > own else None)


def choices_of(layout: Layout) -> list[tuple[str, object]]:
    """What a layout chooses, part by part."""
    found: list[tuple[str, object]] = [("mesh", layout.mesh), ("axes", layout.axis_type)]
    for place, spec in enumerate([*layout.specs, *([] if layout.result is None else [layout.result])]):
        for axis in layout.axes:
            split = next((dimension for dimension, names in enumerate(spec) if axis in names), None)
            found.append((f"{axis} in {place}", split))
    return found


def goals_of(layout: Layout) -> frozenset[object]:
    """The pairs of choices and the whole specs that a layout covers."""
    pairs = combinations(choices_of(layout), 2)
    return frozenset([*pairs, *enumerate(layout.specs)])


def covering(layouts: list[Layout]) -> list[Layout]:
    """Few of these layouts that cover what all of them cover, the one that adds most first; the same every time."""
    goals = [goals_of(layout) for layout in layouts]
    left = Counter(goal for each in goals for goal in each)
    missing, chosen = set(left), list[Layout]()
    while missing:
        best = max(range(len(layouts)), key=lambda place: len(goals[place] & missing))
        missing -= goals[best]
        chosen.append(layouts[best])
    return chosen
