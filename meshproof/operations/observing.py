"""An operation, seen once: under each of its layouts what became of its result, its gradients, and what moved."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

from meshproof.hlo.census import census
from meshproof.hlo.errors import HloError
from meshproof.measures.numerics import judge
from meshproof.observing.members import origin
from meshproof.observing.seen import Failed, Seen
from meshproof.operations import Operation
from meshproof.operations.layouts import Layout, aligned, covering, every_layout
from meshproof.operations.programs import forward, make_mesh, place, placed_by, replicas, use, with_gradients
from meshproof.operations.references import Expected, Reference, UnlikeNumpyError

Problem = tuple[str, float]
"""What is wrong, or an empty string; and an error over its bound."""

Moved = list[dict[str, Any]] | str

Fate = Literal["right", "refused", "broken", "wrong"]
Direction = Literal["forward", "gradient"]

REFUSALS = (TypeError, ValueError, NotImplementedError)
SHARDING = ("ShardingTypeError", "DuplicateSpecError")
"""What JAX raises for a layout that it does not support; the last two are not public. Other errors are faults."""

WANTED, TRIED = 3, 32
"""Layouts on explicit axes that an operation runs under, where a covering has fewer that JAX does not refuse; and how
many are tried for that."""

VACUOUS = 0.5
"""A bound above this share of the signal could hide a wrong sum. Products in bfloat16 come near it."""


@dataclass(frozen=True)
class Point:
    """One direction of an operation under one layout: what became of it, in words where it is not right."""

    layout: str
    direction: Direction
    fate: Fate
    detail: str = ""
    margin: float = 0.0
    run: int = 0


@dataclass(frozen=True)
class PointsSeen:
    """Something under all its layouts.

    ``moved`` has the collectives of each layout's program, as recorded, or why they cannot be counted; ``problems`` are
    those that it has on one device.
    """

    name: str
    points: tuple[Point, ...]
    moved: dict[str, Moved]
    problems: tuple[str, ...]


@dataclass(frozen=True)
class OperationSeen(PointsSeen):
    """An operation under all its layouts, and the shape of its first result."""

    shape: tuple[int, ...]
    layouts: dict[str, Layout]


def observe_operation(operation: Operation, exhaustive: bool, note: Callable[[str], object]) -> Seen[OperationSeen]:
    """Run it under its layouts; ``note`` is told of each before it runs, so that a crash can name it."""
    note("one device")
    try:
        reference = Reference(operation)
        expected = reference.expected()
        problems = tuple(reference.faults(expected))
    except UnlikeNumpyError as error:
        return Failed(f"on one device: {error}")
    except Exception as error:
        return Failed(f"on one device: expected a result, saw {type(error).__name__}: {error} ({origin(error)})")
    shape = expected[0].arrays[0][0].shape
    layouts = every_layout([operand.shape for operand in operation.operands], shape)
    layouts = [layout for layout in layouts if layout.axis_type in operation.axis_types]
    layouts = layouts if exhaustive else covering(layouts)[: operation.most]
    points, moved, named = list[Point](), dict[str, Moved](), dict[str, Layout]()
    for layout in layouts if exhaustive else chain(layouts, unrefused(operation, layouts, points)):
        note(layout.name)
        named[layout.name] = layout
        for point, collectives in Trial(operation, layout, expected).points():
            points.append(point)
            moved |= {layout.name: collectives} if collectives is not None else {}
    problems = (*problems, *undifferentiated(points, named))
    return OperationSeen(operation.name, tuple(points), moved, problems, shape, named)


def undifferentiated(points: list[Point], layouts: dict[str, Layout]) -> Iterator[str]:
    """A sentence where JAX refuses gradients of what has results: on automatic axes it differentiates every layout."""
    refused = {(point.layout, point.direction): point.detail for point in points if point.fate == "refused"}
    differentiated = [point.layout for point in points if point.direction == "gradient"]
    run = [name for name in differentiated if layouts[name].axis_type == "Auto" and (name, "forward") not in refused]
    if lost := [name for name in run if (name, "gradient") in refused]:
        yield (
            f"gradient, {len(lost)} of {len(run)} layouts on Auto axes that give a result: expected gradients too, saw "
            f"them refused, the first under {lost[0]} by: {refused[lost[0], 'gradient']}"
        )


def unrefused(operation: Operation, layouts: list[Layout], points: list[Point]) -> Iterator[Layout]:
    """More layouts on explicit axes, until of those that split an operand `WANTED` are not refused. ``points`` are
    those that were seen, and grow as each layout is run."""
    tried = {layout.name for layout in layouts if layout.axis_type == "Explicit" and layout.splits}
    more = aligned([operand.shape for operand in operation.operands]) if "Explicit" in operation.axis_types else ()
    for layout in islice((each for each in more if each.name not in tried), TRIED):
        run = {point.layout for point in points if point.fate != "refused"}
        if len(run & tried) >= WANTED:
            return
        tried.add(layout.name)
        yield layout


class Trial:
    """An operation under one layout."""

    def __init__(self, operation: Operation, layout: Layout, expected: Sequence[Expected]) -> None:
        self.operation, self.layout, self.expected = operation, layout, expected
        self.mesh = make_mesh(layout.mesh, layout.axis_type)
        self.placed = placed_by(layout, self.mesh)

    def points(self) -> Iterator[tuple[Point, Moved | None]]:
        """Both directions by one program; where that does not compile, the forward one alone."""
        both: tuple[Direction, ...] = ("forward", "gradient") if self.operation.differentiated else ("forward",)
        programs = [(both[:1], forward(self.operation, self.placed))]
        if len(both) > 1:
            explicit = self.layout.axis_type == "Explicit"
            programs.insert(0, (both, with_gradients(self.operation, explicit, self.placed)))
        for directions, program in programs:
            try:
                compiled = self.compiled(program)
            except Exception as error:
                yield Point(self.layout.name, directions[-1], *fate_of(error)), None
                continue
            yield from self.judged(compiled, directions)
            return

    @property
    def donated(self) -> tuple[int, ...]:
        """The operand whose buffer the program may take."""
        return () if self.operation.donates is None else (self.operation.donates,)

    def compiled(self, program: Callable[..., Any]) -> Any:
        """The program for this layout. Raises what JAX does where it refuses the layout."""
        jitted = jax.jit(lambda *given: program(given[:-1], given[-1]), donate_argnums=self.donated)
        with use(self.mesh):
            return jitted.lower(*self.given(self.expected[0])).compile()

    def given(self, run: Expected) -> list[Any]:
        """What the program takes in one run."""
        return [*place(run.operands, self.layout, self.mesh), run.cotangent]

    def judged(self, compiled: Any, directions: tuple[Direction, ...]) -> list[tuple[Point, Moved | None]]:
        """The points of a program that compiles, and its collectives beside the first. What it raises is a fault."""
        collectives = counted(compiled.as_text() or "", self.layout.axes)
        try:
            with use(self.mesh):
                verdicts = [self.verdicts(compiled, run, len(directions)) for run in self.expected]
        except Exception as error:
            told = f"while it ran: {fate_of(error)[1]}"
            return [(Point(self.layout.name, direction, "broken", told), collectives) for direction in directions]
        return [
            (self.point(direction, [(each[number], each[-1]) for each in verdicts]), None if number else collectives)
            for number, direction in enumerate(directions)
        ]

    def point(self, direction: Direction, verdicts: Sequence[tuple[Problem, Problem]]) -> Point:
        """What became of one direction in all runs."""
        wrong = [f"run {run}: {told}" for run, found in enumerate(verdicts) for told, _ in found if told]
        margin = max(margin for found in verdicts for _, margin in found)
        first = next((run for run, found in enumerate(verdicts) if any(told for told, _ in found)), 0)
        return Point(self.layout.name, direction, "wrong" if wrong else "right", "; ".join(wrong[:2]), margin, first)

    def verdicts(self, compiled: Any, run: Expected, parts: int) -> list[Problem]:
        """What is wrong in one run: with results, with gradients where these are a second part, and with operands."""
        given = self.given(run)
        found = [self.verdict(number, part, run) for number, part in enumerate(compiled(*given)[:parts])]
        kept = [number for number in range(len(run.operands)) if number not in self.donated]
        return [*found, changed([(number, given[number], run.operands[number]) for number in kept])]

    def verdict(self, number: int, part: Sequence[jax.Array], run: Expected) -> Problem:
        """What is wrong with results (0), or with gradients (1), and the largest margin."""
        told, margin = "", 0.0
        for nth, (array, true) in enumerate(zip(part, run.arrays[number], strict=True)):
            deviation = run.deviations[number][nth] if run.deviations else None
            what = f"result {nth}" if number == 0 else f"gradient of operand {self.operation.differentiated[nth]}"
            for copy in replicas(array):
                problem, by = compared(copy, np.asarray(true), deviation, what)
                if copy.dtype != run.dtypes[number][nth]:
                    problem = f"{what}: expected {run.dtypes[number][nth]} as on one device, saw {copy.dtype}"
                told, margin = told or problem, max(margin, by)
        return told, margin


def counted(text: str, axes: dict[str, int]) -> Moved:
    """The collectives of a compiled program on a mesh of these axes."""
    try:
        return [entry.recorded() for entry in census(text, axes)]
    except HloError as error:
        return str(error)


def changed(operands: Iterable[tuple[int, jax.Array, np.ndarray]]) -> Problem:
    """Whether a program wrote to an operand that it was not given."""
    for number, now, was in operands:
        if any(copy.tobytes() != was.tobytes() for copy in replicas(now)):
            return f"operand {number} is not what it was before the program ran", 0.0
    return "", 0.0


def compared(saw: np.ndarray, true: np.ndarray, deviation: np.ndarray | None, what: str) -> Problem:
    """What is wrong with an array, or nothing; and its error over its bound."""
    if saw.shape != true.shape:
        return f"{what}: expected shape {true.shape}, saw {saw.shape}", 0.0
    same = (saw == true) | ((saw != saw) & (true != true))
    if deviation is not None:
        deviation = deviation * (1 + 1j) if true.dtype.kind == "c" else deviation
        infinite = same & ~np.isfinite(true)
        saw, true, bound = (parts(np.where(infinite, 0, each)) for each in (saw, true, deviation))
        verdict = judge({what: saw}, {what: true}, {what: bound}, "values", VACUOUS)
        return ("" if verdict.passed else str(verdict)), verdict.margin
    if np.all(same):
        return "", 0.0
    index = tuple(int(each) for each in np.argwhere(~same)[0])
    count = f"{np.count_nonzero(~same):,} of {same.size:,} elements"
    return f"{what}: {count} differ, the first at {index}: expected {true[index].item()}, saw {saw[index].item()}", 0.0


def parts(array: np.ndarray) -> np.ndarray:
    """Complex numbers by their real and imaginary parts, in a last dimension of two."""
    return np.stack([array.real, array.imag], -1) if array.dtype.kind == "c" else array


def fate_of(error: Exception) -> tuple[Fate, str]:
    """Whether a layout is refused, or what supports it is broken; and the first line of the message."""
    told = " ".join(f"{type(error).__name__}: {error}".splitlines()[0].split())
    refused = isinstance(error, REFUSALS) or type(error).__name__ in SHARDING
    return ("refused" if refused else "broken"), told


def wrong(seen: PointsSeen) -> Iterator[str]:
    """A sentence for each layout and direction that is wrong or broken, those on one device first."""
    yield from seen.problems
    for point in seen.points:
        if point.fate in ("wrong", "broken"):
            yield f"{point.direction}, {point.layout}: {point.detail}"
    if all(point.fate == "refused" for point in seen.points):
        yield f"refused under all {len(seen.points)} layouts, the first time by: {seen.points[0].detail}"


def uncounted(seen: PointsSeen) -> Iterator[str]:
    """A sentence for each layout whose program moves bytes that nobody knows."""
    for layout, moved in seen.moved.items():
        if isinstance(moved, str):
            yield f"{layout}: the program cannot be read: {moved}"
        elif unknown := [entry["operation"] for entry in moved if entry["bytes"] is None]:
            yield f"{layout}: expected the bytes of {', '.join(unknown)}, saw a number that depends on the data"


def noted(path: Path) -> Callable[[str], object]:
    """Writes what runs next to a file, for whoever must tell where a process died."""
    return lambda name: path.write_text(name, encoding="utf-8")
