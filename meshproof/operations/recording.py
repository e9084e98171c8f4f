"""Parts of a report: what became of an operation under each layout and what moved; what a program has at each size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from meshproof.observing.seen import Seen, Unseen
from meshproof.operations.growing.observing import ProgramSeen
from meshproof.operations.observing import Direction, Point, PointsSeen

DIRECTIONS: tuple[Direction, ...] = get_args(Direction)

LONGEST = 200
"""Characters of a message that are kept."""


def operation_entry(name: str, seen: Seen[PointsSeen]) -> dict[str, Any]:
    """The entry of one operation. ``points`` has those of each layout; a right one has no detail."""
    if isinstance(seen, Unseen):
        return {"id": name, "problem": seen.reason, "layouts": {}}
    layouts: dict[str, dict[str, Any]] = {}
    for point in seen.points:
        moved = seen.moved.get(point.layout)
        entry = layouts.setdefault(point.layout, {"collectives": None if isinstance(moved, str) else moved})
        entry[point.direction] = told(point)
    return {"id": name, "problem": "; ".join(seen.problems) or None, "layouts": layouts}


def program_entry(name: str, seen: Seen[ProgramSeen]) -> dict[str, Any]:
    """The entry of one growing program: what is counted and timed of it at each size."""
    if isinstance(seen, Unseen):
        return {"id": name, "problem": seen.reason, "sizes": []}
    return {"id": name, "problem": None, "sizes": [each.recorded() for each in seen.sizes]}


def fates(layout: Mapping[str, Any]) -> list[str]:
    """What became of each direction of a layout's entry."""
    return [layout[direction] for direction in DIRECTIONS if direction in layout]


def told(point: Point) -> str:
    """What became of one direction, in words that begin with its fate."""
    return point.fate if point.fate == "right" else f"{point.fate}: {point.detail}"[:LONGEST]
