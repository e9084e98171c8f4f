"""Which compositions are run: every pair of transforms, and of what else there is to choose, or all there are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from math import prod

import numpy as np

from meshproof.operations.layouts import AXES, AXIS_TYPES
from meshproof.operations.transforms import Axis, Body, Transform, TransformFamily

PLACES = ("none", "innermost", "between", "outermost")
"""Where ``shard_map`` is among the transforms; without it, shardings alone split the work."""

CANDIDATES = 24
"""Drawn for each pair of transforms, of which the one that covers most is run."""


@dataclass(frozen=True)
class Ground:
    """A mesh, the axis that collectives run over, or several, major first, and whether the other axes are left to the
    compiler."""

    mesh: tuple[int, ...]
    axis: Axis
    automatic: bool = False

    @property
    def axes(self) -> tuple[str, ...]:
        """The axis, or the several."""
        return (self.axis,) if isinstance(self.axis, str) else self.axis

    @property
    def size(self) -> int:
        """Devices along the axis."""
        return prod(self.mesh[AXES.index(axis)] for axis in self.axes)

    @property
    def name(self) -> str:
        """As ``a=2,b=4 over b, a automatic``."""
        sizes = ",".join(f"{axis}={size}" for axis, size in zip(AXES, self.mesh, strict=False))
        others = ", ".join(axis for axis in AXES[: len(self.mesh)] if axis not in self.axes)
        return f"{sizes} over {'×'.join(self.axes)}" + f", {others} automatic" * self.automatic


GROUNDS = (
    Ground((8,), "a"),
    Ground((2, 4), "b"),
    Ground((4, 2), "a"),
    Ground((1, 8), "a"),
    Ground((8, 1), "a"),
    Ground((2, 4), "a", automatic=True),
    Ground((4, 2), "b", automatic=True),
    Ground((2, 4), ("a", "b")),
    Ground((4, 2), ("a", "b")),
)


@dataclass(frozen=True)
class Form:
    """Where ``shard_map`` is, whether it checks the types of values, and whether it closes over w."""

    place: str
    check_vma: bool = True
    closes: bool = False


FORMS = (
    Form("none"),
    *(Form(place, checks) for place in PLACES[1:] for checks in (True, False)),
    *(Form("between", checks, closes=True) for checks in (True, False)),
)


@dataclass(frozen=True)
class Setting:
    """One composition, on a mesh."""

    outer: Transform
    inner: Transform
    body: Body
    form: Form
    ground: Ground
    axis_type: str

    @property
    def inside(self) -> tuple[Transform, ...]:
        """The transforms that ``shard_map`` is around."""
        return {"outermost": (self.outer, self.inner), "between": (self.inner,)}.get(self.form.place, ())

    @property
    def is_possible(self) -> bool:
        """Only what is the same on every device can be closed over."""
        return not self.form.closes or self.body.split[1] is None

    @property
    def differs(self) -> bool:
        """Whether copies of one array differ on the devices: each then leaves ``shard_map`` by itself."""
        return not self.form.check_vma and any(transform.reverse for transform in self.inside)

    @property
    def name(self) -> str:
        """As ``grad(shard_map(scan(ring), check_vma=False)), a=8 over a, Auto``."""
        told, place = self.body.name, self.form.place
        parts = [self.inner.name, self.outer.name]
        parts.insert(PLACES.index(place) - 1, "shard_map") if place != "none" else None
        options = ", closed over w" * self.form.closes + ", check_vma=False" * (not self.form.check_vma)
        for part in parts:
            told = told if part == "plain" else f"{part}({told}{options if part == 'shard_map' else ''})"
        return f"{told}, {self.ground.name}, {self.axis_type}"

    @property
    def choices(self) -> tuple[object, ...]:
        """What it chooses, part by part."""
        return self.outer.name, self.inner.name, self.body.name, self.form, self.ground, self.axis_type


def chosen_settings(families: Sequence[TransformFamily], exhaustive: bool) -> dict[str, list[Setting]]:
    """The compositions of each family, by its id; the same every time.

    By default every inner transform of a family once, and in all families together every pair of choices; else every
    transform, body and form, on a mesh that is drawn.
    """
    draws, covered = np.random.default_rng(0), set[object]()
    found = dict[str, list[Setting]]()
    for family in families:
        own = found.setdefault(family.id, [])
        if exhaustive:
            for inner, body, form in product(family.inners, family.bodies, FORMS):
                own += drawn(draws, family.outer, (inner,), (body,), (form,))
            continue
        for inner in family.inners:
            candidates = [
                each for _ in range(CANDIDATES) for each in drawn(draws, family.outer, (inner,), family.bodies, FORMS)
            ]
            best = max(candidates, key=lambda each: len(goals(each) - covered))
            covered |= goals(best)
            own.append(best)
    return found


def drawn(
    draws: np.random.Generator,
    outer: Transform,
    inners: Sequence[Transform],
    bodies: Sequence[Body],
    forms: Sequence[Form],
) -> Iterator[Setting]:
    """One of these, if it is possible."""
    parts: list[Sequence[object]] = [inners, bodies, forms, GROUNDS, AXIS_TYPES]
    one = Setting(outer, *(part[int(draws.integers(len(part)))] for part in parts))  # type: ignore[arg-type]
    if one.is_possible:
        yield one


def goals(setting: Setting) -> set[object]:
    """The pairs of choices that it covers."""
    return {*combinations(enumerate(setting.choices), 2)}
