"""A family of compositions, seen once: what became of the results and the gradients of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from meshproof.observing.members import origin
from meshproof.observing.seen import Failed, Seen
from meshproof.operations.layouts import AXES
from meshproof.operations.observing import Direction, Moved, Point, PointsSeen, compared, counted, fate_of
from meshproof.operations.programs import make_mesh, replicas, sharding, use
from meshproof.operations.references import float64
from meshproof.operations.transforms import TransformFamily
from meshproof.operations.transforms.programs import cotangents, meaning, operands, program, specs_of, with_gradients
from meshproof.operations.transforms.settings import Setting

Parts = Sequence[Sequence[Any]]
"""Results of x and w, and gradients by x and w."""

DIRECTIONS: tuple[Direction, ...] = ("forward", "gradient")


@dataclass(frozen=True)
class FamilySeen(PointsSeen):
    """A family of compositions, and what those that are wrong or broken should have computed."""

    expected: dict[str, Parts]


QUICKLY = {"xla_backend_optimization_level": 0}
"""A reference runs once, and its numbers are whole: better code would only take longer to make."""


def observe_family(
    family: TransformFamily, settings: Sequence[Setting], note: Callable[[str], object]
) -> Seen[FamilySeen]:
    """Run the compositions of a family; ``note`` is told of each before it runs, so that a crash can name it."""
    note("one device")
    try:
        expected = meanings(settings)
    except Exception as error:
        return Failed(f"on one device: expected a result, saw {type(error).__name__}: {error} ({origin(error)})")
    points, moved = list[Point](), dict[str, Moved]()
    for setting, parts in zip(settings, expected, strict=True):
        note(setting.name)
        for point, collectives in observe_setting(setting, parts):
            points.append(point)
            moved |= {setting.name: collectives} if collectives is not None else {}
    failed = {point.layout for point in points if point.fate in ("wrong", "broken")}
    means = {setting.name: parts for setting, parts in zip(settings, expected, strict=True) if setting.name in failed}
    return FamilySeen(family.outer.name, tuple(points), moved, (), means)


def meanings(settings: Sequence[Setting]) -> list[Parts]:
    """What compositions mean, on one device in float64."""
    given = [array.astype(np.float64) for array in (*operands(), *cotangents())]
    with float64(), use(make_mesh((1, 1))):
        functions = [with_gradients(meaning(setting)) for setting in settings]
        every = jax.jit(lambda *given: [function(*given) for function in functions], compiler_options=QUICKLY)
        return jax.tree.map(np.asarray, every(*given))  # type: ignore[no-any-return]


def observe_setting(setting: Setting, expected: Parts) -> Iterator[tuple[Point, Moved | None]]:
    """Both directions of one composition by one program; where JAX refuses that, the forward one alone."""
    mesh = make_mesh(setting.ground.mesh, setting.axis_type)
    x, w = specs_of(setting)
    specs = [sharding(spec, mesh) for spec in (x, w, x, w)]
    with use(mesh):
        given = [jax.device_put(*each) for each in zip((*operands(), *cotangents()), specs, strict=True)]

        def function(x: Any, w: Any) -> tuple[Any, Any]:
            return program(setting, mesh)(x, w)  # where a transform raises, it does so while it is traced

        whole = with_gradients(function, setting.axis_type == "Explicit")
        for directions, one in ((DIRECTIONS, whole), (DIRECTIONS[:1], lambda x, w, *_: [function(x, w)])):
            try:
                compiled = jax.jit(one).lower(*given).compile()
            except Exception as error:
                yield Point(setting.name, directions[-1], *fate_of(error)), None
                continue
            collectives = counted(compiled.as_text() or "", dict(zip(AXES, setting.ground.mesh, strict=False)))
            yield from judged(setting.name, directions, lambda: compiled(*given), expected, collectives)  # noqa: B023
            return


def judged(
    name: str, directions: Sequence[Direction], run: Callable[[], Parts], expected: Parts, collectives: Moved
) -> Iterator[tuple[Point, Moved | None]]:
    """The points of a program that compiles, and its collectives beside the first. What it raises is a fault."""
    try:
        parts = [[replicas(array) for array in part] for part in run()]
    except Exception as error:
        for direction in directions:
            yield Point(name, direction, "broken", f"while it ran: {fate_of(error)[1]}"), collectives
        return
    for number, direction in enumerate(directions):
        what = "result" if direction == "forward" else "gradient of"
        told = [
            compared(copy, true.astype(copy.dtype), None, f"{what} {operand}")[0]
            for operand, copies, true in zip("xw", parts[number], expected[number], strict=True)
            for copy in copies
        ]
        wrong = "; ".join(filter(None, told))
        yield Point(name, direction, "wrong" if wrong else "right", wrong), None if number else collectives
