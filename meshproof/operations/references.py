"""What an operation must compute: by NumPy in float64 where it has such a judge, else on one device.

Of an exact operation every number is a whole one, or a copy. Sums of products of small whole numbers are exact in
float32 in whatever order they are added, so results and gradients must be equal, not near.

Else the bound is six of the standard deviations that rounding explains (`meshproof.measures.numerics`). A sum of n
numbers rounds its terms at random by u√n of their size, and so does each operand that enters it: the operation, in
float64, is asked how far its result moves when every element of every operand moves by that, with random signs. What
rounding moves in the result itself, u√n of its size, is added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from math import sqrt
from typing import Any

import jax
import numpy as np

from meshproof.operations import Operation
from meshproof.operations.programs import cotangent_of, forward, make_mesh, operands_of, runs_of, use, with_gradients

STEP = 2.0**-10
"""Of a central difference in float64: its error is of the order of its square, about 10⁻⁶."""

NEAR = 1e-4
"""How far the derivative along a direction may be from that difference, in units of the gradient's size."""

DRAWS = 8
"""Random signs by which a deviation is estimated."""

PLACES = 8
"""Beside a kink, from which a slope is taken."""

UNITS = {"float32": 2.0**-24, "complex64": 2.0**-24, "bfloat16": 2.0**-9, "float16": 2.0**-11}
"""Unit roundoff by dtype."""


class UnlikeNumpyError(ValueError):
    """Results on one device that have not the form of the NumPy judge's."""


@dataclass(frozen=True)
class Expected:
    """One run's results and gradients, their dtypes, and for an inexact operation the deviation of each element."""

    operands: list[np.ndarray]
    cotangent: np.ndarray
    arrays: tuple[list[np.ndarray], list[np.ndarray]]
    dtypes: tuple[list[np.dtype], list[np.dtype]]
    deviations: tuple[list[np.ndarray], list[np.ndarray]] | None


class Reference:
    """An operation on one device, and in float64."""

    def __init__(self, operation: Operation) -> None:
        self.operation = operation
        differentiates = bool(operation.differentiated)
        self.program = with_gradients(operation) if differentiates else forward(operation)
        self.once: Callable[..., Any] = jax.jit(self.program)
        self.twice: Callable[..., Any] = jax.jit(lambda *given: self.program(*given))
        self.exactly: Callable[..., Any] = jax.jit(lambda *given: self.program(*given))

    def expected(self) -> list[Expected]:
        """What each run must compute. Raises what the operation raises on one device."""
        with use(make_mesh((1, 1))):
            return [self._expected(which) for which in range(runs_of(self.operation))]

    def _expected(self, which: int) -> Expected:
        operation = self.operation
        operands = operands_of(operation, which)
        shape = jax.eval_shape(operation.function, *operands)
        cotangent = cotangent_of(which, getattr(shape, "shape", ()))
        results, gradients = fetched(self.once(operands, cotangent))
        dtypes = [each.dtype for each in results], [each.dtype for each in gradients]
        if operation.judge:
            self.check_results(results, operands)
        if operation.exact:
            if operation.judge:
                results = [each.astype(own) for each, own in zip(self.judged(operands), dtypes[0], strict=True)]
            return Expected(operands, cotangent, (results, gradients), dtypes, None)
        true = self.precisely(operands, cotangent)
        return Expected(operands, cotangent, true, dtypes, self.deviations(operands, cotangent, true, dtypes[0]))

    def check_results(self, results: Sequence[np.ndarray], operands: Sequence[np.ndarray]) -> None:
        """Raises `UnlikeNumpyError` where there are not as many results as NumPy's, or of its shapes, or where they are
        integers that cannot hold them."""
        judged = self.judged(operands)
        if len(results) != len(judged):
            raise UnlikeNumpyError(f"expected {len(judged)} results as of NumPy, saw {len(results)}")
        for saw, expected in zip(results, judged, strict=True):
            if saw.shape != expected.shape:
                raise UnlikeNumpyError(f"expected shape {expected.shape} of NumPy, saw {saw.shape}")
            lost = expected != expected.astype(saw.dtype)
            if saw.dtype.kind in "iub" and np.any(lost):
                one = expected[lost][0].item()
                raise UnlikeNumpyError(f"expected {one} of NumPy, saw results in {saw.dtype}, which cannot hold it")

    def judged(self, operands: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The results in NumPy."""
        assert self.operation.judge
        results = self.operation.judge(*map(widened, operands))
        return [np.asarray(each) for each in (results if isinstance(results, tuple) else (results,))]

    def precisely(self, operands: Sequence[np.ndarray], cotangent: np.ndarray) -> tuple[list[Any], list[Any]]:
        """Results by NumPy if it can, and gradients on one device, in float64."""
        with float64():
            results, gradients = fetched(self.exactly([*map(widened, operands)], cotangent.astype(np.float64)))
        return self.judged(operands) if self.operation.judge else results, gradients

    def deviations(
        self, operands: Sequence[np.ndarray], cotangent: np.ndarray, true: Any, kept_in: Sequence[np.dtype]
    ) -> Any:
        """The standard deviation that rounding explains, of each element of results and gradients. Of what is infinite
        by right it is 0."""
        kinds = {str(dtype) for dtype in (*(operand.dtype for operand in operands), *kept_in)}
        relative = max((UNITS[kind] for kind in kinds & UNITS.keys()), default=0.0) * sqrt(self.operation.chain)
        draws, squares = np.random.default_rng(0), [[np.zeros(each.shape) for each in part] for part in true]
        for _ in range(DRAWS):
            moved = [perturbed(operand, draws) for operand in operands]
            for part, other, own in zip(squares, self.precisely(moved, cotangent), true, strict=True):
                for square, now, was in zip(part, other, own, strict=True):
                    square += np.abs(difference(now, was)) ** 2
        return tuple(
            [
                np.where(np.isfinite(own), relative * (np.sqrt(square / DRAWS) / PERTURBED + np.abs(own)), 0)
                for square, own in zip(part, whole, strict=True)
            ]
            for part, whole in zip(squares, true, strict=True)
        )

    def faults(self, expected: Sequence[Expected]) -> Iterator[str]:
        """What is wrong with the operation on one device: in two compilations, beside NumPy, and in its gradients."""
        for which, run in enumerate(expected):
            with use(make_mesh((1, 1))):
                first, second = (fetched(program(run.operands, run.cotangent)) for program in (self.once, self.twice))
            pairs = (pair for parts in zip(first, second, strict=True) for pair in zip(*parts, strict=True))
            if any(one.tobytes() != other.tobytes() for one, other in pairs):
                yield f"run {which}: two evaluations of the same operands differ: it is not deterministic"
            if self.operation.judge and self.operation.differentiated:
                yield from self.wrong_slopes(run, f"run {which}")

    def wrong_slopes(self, run: Expected, where: str) -> Iterator[str]:
        """Gradients on one device that are not the slopes of the NumPy judge: along a random direction, and along the
        gradient itself, where one that is too long shows best.

        Where the judge has a kink, as of a maximum of equal numbers, JAX may take any slope between: there the gradient
        in float64 is asked, at places nearby.
        """
        for number, place in enumerate(self.operation.differentiated):
            told = self.off_slope(run.operands, run.cotangent, place, run.arrays[1][number])
            if told and self.kinked(run, place):
                draws = np.random.default_rng([5, place])
                for _ in range(PLACES):
                    aside = shifted(run.operands, place, draws.uniform(0, 0.5, size=run.operands[place].shape))
                    _, gradients = self.precisely(aside, run.cotangent)
                    if not (told := self.off_slope(aside, run.cotangent, place, gradients[number])):
                        break
            if told:
                yield f"{where}: gradient of operand {place} on one device: {told}"

    def off_slope(self, operands: Sequence[np.ndarray], cotangent: np.ndarray, place: int, gradient: np.ndarray) -> str:
        """How the gradient by an operand differs from the judge's slope; empty where it does not."""
        own = np.asarray(gradient, np.float64)
        length = float(np.linalg.norm(own))
        for direction in (direction_of(place, own.shape), own * (sqrt(own.size) / length) if length else own):
            ahead, behind = self.sides(operands, cotangent, place, direction, STEP)
            slope, saw = (ahead + behind) / 2, float(np.vdot(own, direction))
            if not abs(slope - saw) <= NEAR * (length * float(np.linalg.norm(direction)) + abs(slope)):
                return f"expected slope {slope:.6g}, saw {saw:.6g}"
        return ""

    def sides(
        self, operands: Sequence[np.ndarray], cotangent: np.ndarray, place: int, direction: np.ndarray, step: float
    ) -> tuple[float, float]:
        """The judge's slopes ahead of the operands and behind them."""
        behind, here, ahead = (self.judged(shifted(operands, place, by * step * direction))[0] for by in (-1, 0, 1))
        up, down = (float(np.vdot(cotangent, difference(*pair)).real) for pair in ((ahead, here), (here, behind)))
        return up / step, down / step

    def kinked(self, run: Expected, place: int) -> bool:
        """Whether the judge has a kink or a jump at the operands: in a smaller step its slopes ahead and behind differ
        by as much, or both grow."""
        direction = direction_of(place, run.operands[place].shape)
        (ahead, behind), (near_ahead, near_behind) = (
            self.sides(run.operands, run.cotangent, place, direction, step) for step in (STEP, STEP / 8)
        )
        bent = abs(near_ahead - near_behind) > abs(ahead - behind) / 2 > 0
        return bent or abs(near_ahead + near_behind) > 4 * abs(ahead + behind) > 0


def difference(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """What is added to the other; nothing where both are the same, infinity too."""
    same = one == other
    return np.where(same, 0, one * 1.0 - np.where(same, 0, other))


def direction_of(place: int, shape: tuple[int, ...]) -> np.ndarray:
    """A random direction for the operand in that place."""
    return np.random.default_rng([3, place]).normal(size=shape)


PERTURBED = 2.0**-20
"""By how much operands move, relatively, to see how far results do: derivatives are then exact to six digits."""


def perturbed(operand: np.ndarray, draws: np.random.Generator) -> np.ndarray:
    """An operand whose elements moved by `PERTURBED` up or down."""
    if str(operand.dtype) not in UNITS:
        return operand
    return widened(operand) * (1 + PERTURBED * draws.choice([-1, 1], size=operand.shape))


def shifted(operands: Sequence[np.ndarray], place: int, by: np.ndarray) -> list[np.ndarray]:
    """The operands, with one of them moved."""
    return [widened(one) + by if own == place else one for own, one in enumerate(operands)]


def widened(operand: np.ndarray) -> np.ndarray:
    """Floats in float64, complex numbers in complex128; what else there is as it is."""
    wide = np.complex128 if operand.dtype.kind == "c" else np.float64
    return operand.astype(wide) if str(operand.dtype) in UNITS else operand


def fetched(arrays: Any) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Results and gradients on the host."""
    results, gradients = arrays
    return [*map(np.asarray, results)], [*map(np.asarray, gradients)]


def float64() -> AbstractContextManager[Any]:
    """JAX with 64 bits."""
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    from jax.experimental import enable_x64  # type: ignore[attr-defined]

    return enable_x64()
