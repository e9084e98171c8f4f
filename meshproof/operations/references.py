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

UNITS = {"float32": 2.0**-24, "bfloat16": 2.0**-9, "float16": 2.0**-11}
"""Unit roundoff by dtype."""


@dataclass(frozen=True)
class Expected:
    """One run's results and gradients, and for an inexact operation the deviation of each element."""

    operands: list[np.ndarray]
    cotangent: np.ndarray
    arrays: tuple[list[np.ndarray], list[np.ndarray]]
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
        if operation.exact:
            if operation.judge:
                self.check_shapes(results, operands)
                results = [
                    np.asarray(each).astype(own.dtype) for each, own in zip(self.judged(operands), results, strict=True)
                ]
            return Expected(operands, cotangent, (results, gradients), None)
        true = self.precisely(operands, cotangent)
        return Expected(operands, cotangent, true, self.deviations(operands, cotangent, true))

    def check_shapes(self, results: Sequence[np.ndarray], operands: Sequence[np.ndarray]) -> None:
        """Raises ``ValueError`` where the results have other shapes than those of NumPy."""
        for saw, expected in zip(results, self.judged(operands), strict=True):
            if saw.shape != expected.shape:
                raise ValueError(f"expected shape {expected.shape} of NumPy, saw {saw.shape}")

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

    def deviations(self, operands: Sequence[np.ndarray], cotangent: np.ndarray, true: Any) -> Any:
        """The standard deviation that rounding explains, of each element of results and gradients."""
        kinds = [str(operand.dtype) for operand in operands if str(operand.dtype) in UNITS]
        relative = max(UNITS[kind] for kind in kinds) * sqrt(self.operation.chain)
        draws, squares = np.random.default_rng(0), [[np.zeros(each.shape) for each in part] for part in true]
        for _ in range(DRAWS):
            moved = [perturbed(operand, draws) for operand in operands]
            for part, other, own in zip(squares, self.precisely(moved, cotangent), true, strict=True):
                for square, now, was in zip(part, other, own, strict=True):
                    square += (np.asarray(now, np.float64) - was) ** 2 / DRAWS / PERTURBED**2
        return tuple(
            [relative * (np.sqrt(square) + np.abs(own)) for square, own in zip(part, whole, strict=True)]
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
        """Gradients on one device that are not the slopes of the NumPy judge."""
        for place, gradient in zip(self.operation.differentiated, run.arrays[1], strict=True):
            direction = np.random.default_rng([3, place]).normal(size=gradient.shape)
            ahead, behind = (
                np.vdot(run.cotangent, self.judged(shifted(run.operands, place, sign * STEP * direction))[0])
                for sign in (1, -1)
            )
            slope, saw = (ahead - behind) / (2 * STEP), float(np.vdot(np.asarray(gradient, np.float64), direction))
            size = float(np.linalg.norm(np.asarray(gradient, np.float64)) * np.linalg.norm(direction)) + abs(slope)
            if abs(slope - saw) > NEAR * size:
                yield f"{where}: gradient of operand {place} on one device: expected slope {slope:.6g}, saw {saw:.6g}"


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
    """Floats in float64; what else there is as it is."""
    return operand.astype(np.float64) if str(operand.dtype) in UNITS else operand


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
