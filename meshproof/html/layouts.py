"""Pictures of which device of the mesh holds which part of an array; leaves with one sharding share a picture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

Axes = tuple[tuple[str, ...], ...]
Sharding = tuple[Axes | None, str]
MOST = 64
"""The most devices in a picture; a larger mesh is described in words."""

CELL, GAP, LABEL = 24, 14, 14


@dataclass(frozen=True)
class Square:
    """A device or a part of an array at its place in a picture."""

    x: float
    y: float
    width: float
    height: float
    part: int
    title: str = ""


@dataclass(frozen=True)
class Picture:
    """Squares within a width and a height, and words at (x, y)."""

    width: float
    height: float
    squares: tuple[Square, ...]
    words: tuple[tuple[float, float, str], ...]


@dataclass(frozen=True)
class Placement:
    """How an array is sharded over a mesh: in words, and in pictures if it can be drawn."""

    words: str
    array: Picture | None = None
    mesh: Picture | None = None


@dataclass(frozen=True)
class Layout:
    """Leaves with one sharding in the old report and one in the new: (path, global shape, shape on a device)."""

    old: Placement | None
    new: Placement | None
    changed: bool
    leaves: tuple[tuple[str, str, str], ...]


def compare_layouts(pair: tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]) -> tuple[Layout, ...]:
    """The layouts of a case in the old report and in the new, those that changed first."""
    old, new = ({} if case is None else case["shardings"] for case in pair)
    meshes = [{} if case is None else case["mesh"] for case in pair]
    groups: dict[tuple[Sharding | None, Sharding | None], list[str]] = {}
    for path in {**new, **old}:
        groups.setdefault((_sharding(old.get(path)), _sharding(new.get(path))), []).append(path)
    layouts = [
        Layout(
            was and _place(*was, meshes[0]),
            now and _place(*now, meshes[1]),
            None not in pair and was != now,
            tuple(_describe(path, new.get(path) or old[path]) for path in paths),
        )
        for (was, now), paths in groups.items()
    ]
    return tuple(sorted(layouts, key=lambda layout: not layout.changed))


def _sharding(leaf: Mapping[str, Any] | None) -> Sharding | None:
    """Equal for leaves that share a picture: the mesh axes, or the spec if the axes are unknown."""
    if leaf is None:
        return None
    if leaf["axes"] is None:
        return None, leaf["spec"]
    return tuple(map(tuple, leaf["axes"])), ""


def _describe(path: str, leaf: Mapping[str, Any]) -> tuple[str, str, str]:
    whole, part = ("×".join(map(str, shape)) or "scalar" for shape in (leaf["shape"], leaf["shard_shape"] or ()))
    return path, whole, part if leaf["shard_shape"] is not None else "unknown"


def _place(axes: Axes | None, spec: str, mesh: Mapping[str, int]) -> Placement:
    if axes is None:
        return Placement(f"{spec}: no regular partition")
    over = [f"dimension {number} over {'×'.join(names)}" for number, names in enumerate(axes) if names]
    words = ", ".join(over) or "replicated"
    if prod(mesh.values()) > MOST or any(name not in mesh for names in axes for name in names):
        return Placement(words)
    return Placement(words, _draw_array(axes, mesh), _draw_mesh(axes, mesh))


def _draw_array(axes: Axes, mesh: Mapping[str, int]) -> Picture:
    """The array cut into its parts: the last two dimensions that are cut are rows and columns."""
    counts = [prod(mesh[name] for name in names) for names in axes]
    *outer, rows, columns = [1, 1, *(count for count in counts if count > 1)]
    if len(counts) > 1 and counts[-1] == 1 and sum(count > 1 for count in counts) == 1:
        rows, columns = columns, rows
    rows *= prod(outer)
    height = CELL if len(axes) < 2 else 3 * CELL
    width = 4 * CELL
    squares = [
        Square(width * column / columns, height * row / rows, width / columns, height / rows, row * columns + column)
        for row, column in product(range(rows), range(columns))
    ]
    return Picture(width, height, tuple(squares), ())


def _draw_mesh(axes: Axes, mesh: Mapping[str, int]) -> Picture:
    """Devices in rows and columns by the last two mesh axes, a panel for each position on the axes before them."""
    sizes = list(mesh.items())
    *outer, (down, rows), (along, columns) = [("", 1), ("", 1), *sizes][-max(len(sizes), 2) :]
    squares: list[Square] = []
    words: list[tuple[float, float, str]] = []
    panel = max(columns * CELL, 6 * len(", ".join(f"{name}={size}" for name, size in outer))) + GAP
    left = 8 * len(down) + 4 if down else 0
    top = LABEL * bool(outer) + LABEL * bool(along)
    for number, coordinates in enumerate(product(*(range(size) for _, size in outer))):
        x = left + number * panel
        fixed = dict(zip((name for name, _ in outer), coordinates, strict=True))
        if fixed:
            words.append((x, LABEL - 4, ", ".join(f"{name}={at}" for name, at in fixed.items())))
        words.append((x, top - 4, f"{along} →" if along else ""))
        for row, column in product(range(rows), range(columns)):
            at = {**fixed, down: row, along: column}
            where = ", ".join(f"{name}={at[name]}" for name in mesh)
            part = _part(axes, mesh, at)
            title = f"{where}: part {part}"
            squares.append(Square(x + column * CELL, top + row * CELL, CELL, CELL, part, title))
    if down:
        words.append((0, top + CELL / 2 + 4, f"{down} ↓"))
    panels = prod(size for _, size in outer)
    return Picture(left + panels * panel - GAP, top + rows * CELL, tuple(squares), tuple(words))


def _part(axes: Axes, mesh: Mapping[str, int], at: Mapping[str, int]) -> int:
    """The number of the part at these coordinates, counted along the last dimension first."""
    part = 0
    for name in (name for names in axes for name in names):
        part = part * mesh[name] + at[name]
    return part
