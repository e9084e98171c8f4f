"""What rounding explains of a training, measured: inputs are moved by one rounding, and runs then differ so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from meshproof.contract import Leaves, Step, Trajectory, Tree, leaves

FUNCTIONS = 48
"""Roundings that stand for functions, which a compiler computes otherwise in arrays of another width: 2 ulp, squared,
in twelfths. Of 1,350 runs of 45 healthy trainers one, with a GELU on eight columns, was off by more without them."""

WIDTHS = 4
"""As many times the variance of the draws, where they are held against float64: in arrays of another width a function
may err twice as much as roundings do, and what follows makes as much of it. Of ten starts of a trainer with a GELU on
eight columns one was at 0.83 of its bound without this."""

SQUARED = 4
"""Of a square, as a second moment is one, the error is twice as large beside the value."""

MOVED = 1 / 12
"""The chance of moving by one ulp: the error has the variance ulp²/12, that of one rounding to nearest."""


def as_held(tree: Tree) -> Leaves:
    """Host arrays as JAX holds them without x64: an int64 as int32, a float64 as float32."""
    return {path: np.asarray(jax.numpy.asarray(value)) for path, value in leaves(tree)}


def widened(tree: Leaves) -> Leaves:
    """The same numbers in float64."""
    return {path: value.astype(np.float64) if is_float(value) else value for path, value in tree.items()}


def is_float(value: np.ndarray) -> bool:
    """Whether it holds floating-point numbers of any width."""
    return jax.numpy.issubdtype(value.dtype, jax.numpy.floating)


def only_doubles(trajectory: Trajectory) -> bool:
    """Whether every float of a run is one of float64."""
    held = [
        trajectory.gradients,
        *(tree for step in trajectory.steps for tree in (step.parameters, step.optimizer_state, step.auxiliary)),
    ]
    return all(value.dtype == np.float64 for tree in held for value in tree.values() if is_float(value))


def moved(given: Sequence[Leaves], draw: int, dtype: str = "float32", ulps: float = 1.0) -> list[Leaves]:
    """Every float element by so many ulp of a dtype up or down, or not at all.

    Whole numbers stay: they may be masks or indices. So does what is no number, and what is kept in fewer digits than
    are computed with, as a loader may: it is exact, and no step of its own is as small as a rounding.
    """
    generator = np.random.default_rng(draw)

    def move(value: np.ndarray) -> np.ndarray:
        if not is_float(value) or precision(value.dtype)[1] > precision(dtype)[1]:
            return value
        chance = generator.random(value.shape)
        wide = value.astype(np.float64)
        away = wide + np.where(chance < MOVED / 2, ulps, -ulps) * ulp(wide, dtype)
        still = (chance > MOVED) | (wide == np.rint(wide)) | ~np.isfinite(wide)
        return np.where(still, value, away.astype(value.dtype))

    return [{path: move(value) for path, value in tree.items()} for tree in given]


def narrower(dtype: str, held: Any) -> Any:
    """Of two dtypes of floats the one with fewer digits."""
    return max(dtype, held, key=lambda each: precision(each)[1])


def precision(dtype: Any) -> tuple[float, float]:
    """The smallest normal number of a dtype, and the distance from 1 to the next. TensorFloat-32 has the range of
    float32, and 10 bits of mantissa."""
    told: Any = jax.numpy.finfo("float32" if dtype == "tensorfloat32" else dtype)  # type: ignore[no-untyped-call]
    return float(told.tiny), 2.0**-10 if dtype == "tensorfloat32" else float(told.eps)


def ulp(value: np.ndarray, dtype: Any, range_of: Any = None) -> np.ndarray:
    """The unit in the last place that a dtype has at each of these float64 numbers: 2^⌊log₂|x|⌋ · ε.

    ``range_of`` is another dtype whose exponents they have.
    """
    (tiny, _), (_, eps) = precision(range_of or dtype), precision(dtype)
    with np.errstate(invalid="ignore"):
        _, exponent = np.frexp(np.maximum(np.abs(value), tiny))
    return np.ldexp(eps, exponent - 1)


def deviations(
    true: Trajectory,
    draws: Sequence[Trajectory],
    devices: int,
    dtype: str = "float32",
    width: float = 1.0,
    runs: int = 1,
) -> Trajectory:
    """The deviation of every element: of the draws from ``true``, and of the last roundings, which they do not see.

    Gradients and what is made of them are rounded to the digits of ``dtype``, and `FUNCTIONS` are in them. Its range is
    no matter: a loss scale keeps float16 in it. Of ``runs`` that are compared each rounds; all deviations are taken
    ``width`` times. What the state keeps at infinity in every draw, as the best loss before the first, is known
    exactly: its deviation is 0.
    """

    def of(value: Leaves, others: Sequence[Leaves], number: int, to: str = dtype, more: int = FUNCTIONS) -> Leaves:
        roundings = runs * (devices - 1 + number) + more
        spread = WIDTHS if runs == 1 else 1
        drawn = {path: [other[path] for other in others] for path in value}
        return {path: width * deviation(value[path], drawn[path], roundings, to, spread) for path in value}

    def of_state(value: Leaves, others: Sequence[Leaves], number: int, more: int) -> Leaves:
        exact = {
            path: np.isinf(leaf) & np.all([other[path] == leaf for other in others], axis=0)
            for path, leaf in value.items()
        }
        return {path: np.where(exact[path], 0.0, by) for path, by in of(value, others, number, more=more).items()}

    def of_step(step: Step, others: Sequence[Step], number: int) -> Step:
        [loss] = of({"": np.asarray(step.loss)}, [{"": np.asarray(other.loss)} for other in others], number).values()
        return Step(
            float(loss),
            of(step.parameters, [other.parameters for other in others], number, "float32", more=0),
            of_state(step.optimizer_state, [other.optimizer_state for other in others], number, SQUARED * FUNCTIONS),
            of(step.metrics, [other.metrics for other in others], number),
            of_state(step.auxiliary, [other.auxiliary for other in others], number, FUNCTIONS),
        )

    by_step = zip(true.steps, zip(*(draw.steps for draw in draws), strict=True), strict=True)
    return Trajectory(
        of(true.gradients, [draw.gradients for draw in draws], 1),
        tuple(of_step(step, others, number) for number, (step, others) in enumerate(by_step, 1)),
    )


def of_changes(by: Trajectory, true: Trajectory, before: Leaves, roundings: int, width: float) -> Trajectory:
    """The deviations where the parameters of a step are the sizes of their changes, by ``PATH, WHICH SIZE,``.

    A change is known as well as the parameter is kept that has it: ``roundings`` of the largest element, ``width``
    times, are in each.
    """

    def unit(name: str, change: np.ndarray) -> np.ndarray:
        held = before[name.partition(", ")[0]].astype(np.float64)
        return width * np.sqrt(roundings / 12) * ulp(np.abs(held).max(initial=0) + change, "float32")

    def of_step(deviations: Step, step: Step) -> Step:
        held = deviations.parameters.items()
        return replace(deviations, parameters={at: np.hypot(is_, unit(at, step.parameters[at])) for at, is_ in held})

    return replace(by, steps=tuple(map(of_step, by.steps, true.steps)))


def of_losses(by: Trajectory, true: Trajectory, apart: Sequence[Trajectory]) -> Trajectory:
    """The deviations where a metric may be a function of the loss, as perplexity is: that of the loss is in each, as
    often as the metric moves with it in runs that are much further ``apart`` than rounding."""

    def of_step(deviations: Step, step: Step, others: Sequence[Step]) -> Step:
        moves = deviation(step.loss, [other.loss for other in others], 1)

        def with_loss(path: str, is_: np.ndarray) -> np.ndarray:
            moved = deviation(step.metrics[path], [other.metrics[path] for other in others], 0)
            with np.errstate(invalid="ignore", divide="ignore"):
                by_loss = deviations.loss * moved / moves
            return np.hypot(is_, np.where(np.isfinite(by_loss), by_loss, 0.0))

        return replace(deviations, metrics={path: with_loss(path, is_) for path, is_ in deviations.metrics.items()})

    others = zip(*(run.steps for run in apart), strict=True)
    return replace(by, steps=tuple(map(of_step, by.steps, true.steps, others)))


def deviation(true: Any, draws: Sequence[Any], roundings: int, dtype: str = "float32", times: float = 1) -> np.ndarray:
    """Of one array, element by element: the root mean square of the draws' errors, their variance so many ``times``,
    and that many roundings to a dtype.

    Whole numbers are not rounded. Where a run is not finite, neither is the deviation.
    """
    value = np.asarray(true)
    if not (is_float(value) or value.dtype.kind == "c"):
        return np.sqrt(np.mean([(draw - value.astype(np.float64)) ** 2 for draw in draws], axis=0))
    wide = value.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        errors = np.mean([(np.asarray(draw).astype(np.float64) - wide) ** 2 for draw in draws], axis=0)
        held = "float32" if value.dtype.itemsize >= 4 else value.dtype
        still = (wide == 0) & (errors == 0)  # a moment that nothing enters
        return np.sqrt(
            times * errors + roundings * np.where(still, 0, ulp(wide, narrower(dtype, held), held)) ** 2 / 12
        )
