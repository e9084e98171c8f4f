"""Truth where an implementation brings none: its own training on one device, in float64.

For a model that nobody knows there is no formula of what float32 rounding explains, so it is measured. The trainer on
one device trains in float32, `DRAWS` times, and the deviation of an element is the root mean square of its differences
from float64. In each draw, start values and inputs are moved as if each had been rounded once: by one unit in the last
place up or down, with the chance `MOVED`. From there on every operation rounds other digits. This is Monte Carlo
arithmetic with the perturbation at the inputs (Parker, "Monte Carlo Arithmetic", UCLA CSD-970002, 1997; Vignes,
"Discrete stochastic arithmetic for validating results of numerical software", Numerical Algorithms 37, 2004).

What the draws cannot see is how the last digit of a number falls: all of them may round it alike, by chance to next to
nothing. It is derived: rounding to nearest errs by ulp²/12 in the mean square, once for the result and once for each of
the n − 1 sums that bring n devices together, and each train step rounds what it adds to once more. Step k of n devices
thus has n − 1 + k of them. (Partial sums of one sign are no larger than their sum. Where terms cancel, the draws see
it.)

What is allowed of a leaf is then as everywhere: `numerics.MULTIPLE` deviations, no more than `numerics.VACUOUS` of the
signal. Sums over devices add the same terms in another order. What is not seen: a fault that the trainer also has on
one device, and a kink that rounding crosses in fewer than one of `DRAWS` runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from meshproof.cases import Case, has_member
from meshproof.contract import Batch, Leaves, ReferenceTrajectory, Step, Trajectory, Tree, leaves, nest
from meshproof.hlo.arrays import element_types
from meshproof.observing.members import canonical, loss_of, other_metrics, state_and_metrics
from meshproof.observing.programs import stage
from meshproof.observing.seen import NotSupported
from meshproof.observing.state import array_leaves, host

DRAWS = 32
"""Of a scalar a deviation is known from this many squares, and a normal error exceeds `numerics.MULTIPLE` such
deviations once in a million runs (Student's t with 32 degrees of freedom). A leaf of many elements needs fewer."""

MOVED = 1 / 12
"""The chance of moving by one ulp: the error has the variance ulp²/12, that of one rounding to nearest."""


def measure(case: Case, start: Leaves, batches: Sequence[Batch]) -> ReferenceTrajectory | NotSupported:
    """Train ``single_device`` on these batches from these values, in float64 and, moved, in float32.

    Raises ``ValueError`` where that is no single device. What cannot be done in float64 is not supported, and why.
    """
    if reason := unsuitable(case, start):
        return NotSupported(reason)
    parts = [part for part in ("gradients", "optimizer_state") if has_member(case.strategy, part)]
    single = case.strategy.single_device  # type: ignore[attr-defined]
    trainer = single("float32")
    lacking = [part for part in ("load", "parameters", *parts) if not has_member(trainer, part)]
    if lacking:
        return NotSupported(f"what single_device returns has no {' and no '.join(lacking)}")
    given = [as_held(tree) for tree in (nest(start), *batches)]
    draws = [train(trainer, moved(given, draw), parts, np.float32) for draw in range(DRAWS)]
    try:
        with jax.enable_x64(True):
            trainer = single("float64")
            narrow = narrow_types(trainer, widened(given))
            true = train(trainer, widened(given), parts, np.float64)
    except Exception as error:
        return NotSupported(f"single_device('float64') raised {type(error).__name__}: {error}")
    if narrow:
        return NotSupported(f"single_device('float64') does not compute in float64: its step has {', '.join(narrow)}")
    return ReferenceTrajectory(true, deviations(true, draws, case.devices))


def unsuitable(case: Case, start: Leaves) -> str:
    """Why no such truth can be had, if none can."""
    if case.contract.compute_dtype != "float32":
        return f"a bound is measured of float32 only, and the contract says {case.contract.compute_dtype}"
    if getattr(case.strategy, "draws", False):
        return "its steps draw random numbers, and JAX draws others in float64"
    odd = [f"{path} is {value.dtype}" for path, value in start.items() if value.dtype not in (np.float32, np.int32)]
    return f"a bound is measured of float32 only: {', '.join(odd)}" if odd else ""


def train(trainer: Any, given: Sequence[Leaves], parts: Sequence[str], dtype: Any) -> Trajectory:
    """One step per batch from the first of the trees: everything that the clauses judge, with a loss of that dtype."""
    state = trainer.load(nest(given[0]))
    placed = [place(trainer, nest(batch)) for batch in given[1:]]
    gradients = trainer.gradients(state, placed[0]) if "gradients" in parts else {}
    gradients = host(canonical(gradients, "gradients"))
    check_precision(gradients, dtype)
    steps = []
    for batch in placed:
        state, metrics = state_and_metrics(trainer.train_step(state, batch))
        check_precision({"loss": np.asarray(metrics["loss"])}, dtype)
        parameters = canonical(trainer.parameters(state), "parameters")
        moments = canonical(trainer.optimizer_state(state) if "optimizer_state" in parts else {}, "optimizer_state")
        steps.append(Step(loss_of(metrics), host(parameters), host(moments), other_metrics(metrics)))
    used = {device for _, array in array_leaves(state) for device in array.sharding.device_set}
    if len(used) > 1:
        raise ValueError(f"single_device() trains on {len(used)} devices, expected one: give it a mesh of one device")
    return Trajectory(gradients, tuple(steps))


def check_precision(values: Leaves, dtype: Any) -> None:
    """Raises ``TypeError`` where a float has fewer digits than that dtype."""
    for path, value in values.items():
        if jax.numpy.issubdtype(value.dtype, jax.numpy.floating) and value.dtype.itemsize < np.dtype(dtype).itemsize:
            raise TypeError(f"{path} is {value.dtype}, expected {np.dtype(dtype)}")


def place(trainer: Any, batch: Batch) -> Any:
    """The batch as the trainer takes it."""
    return trainer.shard_batch(batch) if has_member(trainer, "shard_batch") else batch


def narrow_types(trainer: Any, given: Sequence[Leaves]) -> list[str]:
    """Floating-point types of the compiled step that are less than double. Raises ``TypeError`` without ``lower``."""
    if not hasattr(trainer.train_step, "lower"):
        raise TypeError(
            "train_step has no lower(), so that its precision cannot be seen: hand over the jitted function"
        )
    lowered = trainer.train_step.lower(trainer.load(nest(given[0])), place(trainer, nest(given[1])))
    types = element_types(stage(stage(lowered, "lowered").compile(), "compiled").as_text())
    return sorted(name for name in types if name.startswith(("f", "bf")) and name != "f64")


def as_held(tree: Tree) -> Leaves:
    """Host arrays as JAX holds them without x64: an int64 as int32, a float64 as float32."""
    return {path: np.asarray(jax.numpy.asarray(value)) for path, value in leaves(tree)}


def moved(given: Sequence[Leaves], draw: int) -> list[Leaves]:
    """Every float32 element by one ulp up or down, or not at all. Whole numbers stay: they may be masks or indices."""
    generator = np.random.default_rng(draw)

    def move(value: np.ndarray) -> np.ndarray:
        if value.dtype != np.float32:
            return value
        chance = generator.random(value.shape)
        towards = np.where(chance < MOVED / 2, np.float32(np.inf), np.float32(-np.inf))
        return np.where((chance > MOVED) | (value == np.rint(value)), value, np.nextafter(value, towards))

    return [{path: move(value) for path, value in tree.items()} for tree in given]


def widened(given: Sequence[Leaves]) -> list[Leaves]:
    """The same numbers in float64."""
    return [
        {path: value.astype(np.float64) if value.dtype == np.float32 else value for path, value in tree.items()}
        for tree in given
    ]


def deviations(true: Trajectory, draws: Sequence[Trajectory], devices: int) -> Trajectory:
    """The deviation of every element: of the draws from float64, and of the last roundings, which they do not see."""

    def of(value: Leaves, others: Sequence[Leaves], step: int) -> Leaves:
        return {path: deviation(value[path], [other[path] for other in others], devices - 1 + step) for path in value}

    def of_step(step: Step, others: Sequence[Step], number: int) -> Step:
        return Step(
            float(deviation(step.loss, [other.loss for other in others], devices - 1 + number)),
            of(step.parameters, [other.parameters for other in others], number),
            of(step.optimizer_state, [other.optimizer_state for other in others], number),
            of(step.metrics, [other.metrics for other in others], number),
        )

    by_step = zip(true.steps, zip(*(draw.steps for draw in draws), strict=True), strict=True)
    return Trajectory(
        of(true.gradients, [draw.gradients for draw in draws], 1),
        tuple(of_step(step, others, number) for number, (step, others) in enumerate(by_step, 1)),
    )


def deviation(true: Any, draws: Sequence[Any], roundings: int) -> np.ndarray:
    """Of one array, element by element: the root mean square of the draws' errors and that many roundings to float32.

    Whole numbers are not rounded, nor is a sum of zeros: a moment that nothing enters is 0 in every draw.
    """
    value = np.asarray(true)
    errors = np.mean([(draw - value.astype(np.float64)) ** 2 for draw in draws], axis=0)
    if value.dtype.kind != "f":
        return np.sqrt(errors)
    ulp = np.spacing(np.abs(value).astype(np.float32)).astype(np.float64)
    return np.sqrt(errors + roundings * np.where((value == 0) & (errors == 0), 0, ulp) ** 2 / 12)
