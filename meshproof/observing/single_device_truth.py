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

In float64 its own program is computed, whatever float32 is written in it, with the constants and the random numbers
that it has in float32 (`widened_programs`): what float32 makes of 1 − 0.999, mesh and truth have alike. Only where a
step cannot be traced is the trainer asked for one of float64; JAX would draw other numbers in it. Where neither can be
had, and where bfloat16 is declared, the trainer's own run in the precision that it declares takes the place of float64.
Two runs are then compared that both round, so that twice as many roundings are allowed. In bfloat16 it is bfloat16's
unit by which inputs are moved.

What is allowed of a leaf is then as everywhere: `numerics.MULTIPLE` deviations, no more than `numerics.VACUOUS` of the
signal. Sums over devices add the same terms in another order. What is not seen: a fault that the trainer also has on
one device, and a kink that rounding crosses in fewer than one of `DRAWS` runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import jax
import numpy as np

from meshproof.cases import Case, has_member
from meshproof.contract import HALVES, Leaves, ReferenceTrajectory, Step, Trajectory, leaves, nest
from meshproof.measures.lengths import spread
from meshproof.observing.alike import Alike
from meshproof.observing.alone import on_one_device
from meshproof.observing.compilations import COMPILED, compilations_of
from meshproof.observing.dealt_rows import dealt_alike
from meshproof.observing.float64_trainers import NotTheSameError, Widened, of_float64
from meshproof.observing.key_streams import Drawn, drawn
from meshproof.observing.members import canonical, scalar, state_and_metrics
from meshproof.observing.nan_propagation import may_drop_nan
from meshproof.observing.other_states import rekeyed
from meshproof.observing.probes import Probe, lowered, place, probes, run, step_of
from meshproof.observing.rounding import as_held, deviations, of_changes, of_losses, only_doubles
from meshproof.observing.seen import Facet, NotSupported, Seen, Unseen
from meshproof.observing.spread import OTHER, Pieces, Spread, over_other_keys, pieces_of
from meshproof.observing.state import array_leaves, host
from meshproof.observing.subject import Subject

DRAWS = 32
"""Of a scalar a deviation is known from this many squares, and a normal error exceeds `numerics.MULTIPLE` such
deviations once in a million runs (Student's t with 32 degrees of freedom). A leaf of many elements needs fewer."""

PROBE_DRAWS, PROBE_WIDTH = 16, 2.0
"""Fewer draws for probes, whose faults are coarse, and deviations twice as wide: a normal error exceeds them once in a
billion runs (Student's t with 16 degrees of freedom)."""

LARGE, LARGE_DRAWS, LARGE_WIDTH = 1 << 20, 4, 8.0
"""Of as many parameters each step takes long, and each leaf has elements enough to know a deviation by: a scalar's
normal error exceeds those deviations once in a million runs (Student's t with 4 degrees of freedom)."""

APART, FAR_DRAWS = 1024.0, 2
"""So many units in the last place are much more than rounding; so many runs tell how a metric moves with the loss."""

SHOWN = ("parameters", "optimizer_state", "auxiliary")
"""What shows a part of a state, after each step."""

DRAWING = re.compile("threefry|rng_bit_generator")
"""What draws, in a program before it is compiled."""


@dataclass(frozen=True)
class Retraced(NotSupported):
    """One device compiles too often to be trained hundreds of times. CMP-1 says so of a step on the mesh."""


@dataclass(frozen=True)
class SingleDevice(Facet):
    """What the same trainer does on one device: its numbers in training, and in each probe by its name.

    ``in_double``: these are of float64; if not, why. ``draws`` says whether its step draws random numbers. If so,
    ``forward`` is the loss of its forward pass, ``spread`` what `over_other_keys` sees, and ``keys`` are those by which
    the first step draws.
    """

    in_double: Seen[bool]
    truth: Seen[ReferenceTrajectory]
    probes: Seen[dict[str, ReferenceTrajectory]]
    draws: Seen[bool]
    forward: Seen[float]
    spread: Seen[Spread]
    keys: Seen[tuple[Drawn, ...]]


def observe_single_device(subject: Subject, start: Leaves) -> SingleDevice | NotSupported:
    """The facet, from these parameters on the subject's batches. Raises where ``single_device`` does."""
    parts = [part for part in ("gradients", "optimizer_state", "auxiliary") if subject.has(part)]
    trainer = on_one_device(subject.strategy, "float32")
    lacking = [part for part in ("load", "parameters", *parts) if not has_member(trainer, part)]
    if lacking:
        return NotSupported(f"what single_device returns has no {' and no '.join(lacking)}")
    contract = subject.case.contract
    floats = {dtype for dtype in contract.dtypes.values() if "float" in dtype}
    kept = {*floats, *(line.dtype or "float32" for line in contract.step or ())}
    if narrow := sorted(kept - {"float32", contract.compute_dtype}):
        return NotSupported(f"no bound is measured of what is kept or moved in {', '.join(narrow)}")
    one = OneDevice(subject.case, trainer, "gradients" in parts, start, subject.host_batches)
    if getattr(subject.strategy, "draws", False):
        one = dealt_alike(subject, one)
    retraced = subject.attempt(lambda: one.retraced)
    if isinstance(retraced, str) and retraced:
        return Retraced(
            f"{retraced} of single_device(), or what it calls, is compiled in every call, too often to train hundreds "
            "of times: jit it once, outside of it"
        )
    idle = NotSupported("its step draws no random numbers")
    draws, double = subject.attempt(lambda: one.draws), subject.attempt(lambda: one.in_double)
    return SingleDevice(
        in_double=double if isinstance(double, Unseen) else True,
        truth=subject.attempt(lambda: one.reference(one.training, DRAWS)),
        probes=subject.attempt(lambda: dict(one.probed())),
        draws=draws,
        forward=subject.attempt(one.forward) if draws is True and has_member(trainer, "loss") else idle,
        spread=subject.attempt(lambda: one.spread(pieces_of(subject))) if draws is True else idle,
        keys=subject.attempt(one.keys) if draws is True else idle,
    )


class OneDevice:
    """The trainer on one device, in the precision that it declares and, where that can be had, in float64."""

    def __init__(self, case: Case, trainer: Any, gradients: bool, start: Leaves, batches: Sequence[Any]) -> None:
        self.case, self.gradients = case, gradients
        self.trainer: Any = Alike(trainer)
        self.training = Probe("training", as_held(nest(start)), tuple(map(as_held, batches)))
        used = {device for _, array in array_leaves(self.state()) for device in array.sharding.device_set}
        if len(used) > 1:
            raise ValueError(
                f"single_device() trains on {len(used)} devices, expected one: give it a mesh of one device"
            )

    def state(self) -> Any:
        """The one that training starts from."""
        return self.trainer.load(nest(self.training.parameters))

    @cached_property
    def draws(self) -> bool:
        """Whether a step computes with random numbers: it says so, or its program draws, and other keys change what it
        computes, or other counters, with which a key may be folded, its loss or its gradients."""
        if getattr(self.case.strategy, "draws", False):
            return True
        if not self.program_draws:
            return False
        other = self.first_step(rekeyed(self.state(), OTHER, counters=False))
        if not same(other, usual := self.first_step(self.state())):
            return True
        later = self.first_step(rekeyed(self.state(), OTHER))
        return not same(*(replace(each, parameters={}, optimizer_state={}, metrics={}) for each in (later, usual)))

    @cached_property
    def retraced(self) -> str:
        """The member that is compiled in every call, if as many programs are as there are steps in a run after one that
        was the same; else empty."""
        self.train(self.trainer, self.training)
        if compiled_in(lambda: self.train(self.trainer, self.training)) < len(self.training.batches):
            return ""
        state = self.state()
        shown = {part: partial(getattr(self.trainer, part), state) for part in SHOWN if has_member(self.trainer, part)}
        calls: dict[str, Callable[[], Any]] = {"load": self.state} | shown
        for call in calls.values():
            call()
        return next((member for member, call in calls.items() if compiled_in(call)), "train_step")

    @cached_property
    def program_draws(self) -> bool:
        """Whether the program of a step draws, if only to move a key on."""
        return hasattr(self.trainer.train_step, "lower") and bool(
            DRAWING.search(lowered(self.trainer, self.training).as_text())
        )

    def first_step(self, state: Any) -> Step:
        """What the first step computes from a state; its gradients, if it shows them, stand for the auxiliary state."""
        batch = place(self.trainer, nest(self.training.batches[0]))
        gradients = host(canonical(self.trainer.gradients(state, batch), "gradients")) if self.gradients else {}
        step = step_of(self.trainer, *state_and_metrics(self.trainer.train_step(state, batch)))
        return replace(step, auxiliary=gradients)

    @cached_property
    def in_double(self) -> Any:
        """The trainer in float64, by its own program or as it makes itself; `NotSupported` where neither can be had."""
        if self.case.contract.compute_dtype != "float32":
            return NotSupported(f"it computes in {self.case.contract.compute_dtype}")
        ways: dict[str, Callable[[], Any]] = {
            "its own program": partial(Widened, self.trainer),
            "single_device('float64')": self.of_float64,
        }
        reasons = []
        for way, make in ways.items():
            try:
                with jax.enable_x64(True):
                    trainer = make()
                    if only_doubles(self.train(trainer, self.training.in_float64())):
                        return trainer
                reasons.append(f"{way} returns narrower numbers")
            except Exception as error:  # whatever either raises, it is judged in float32
                reasons.append(f"{way} raises {type(error).__name__}: {error}".partition("\n")[0])
        return NotSupported("; ".join(reasons))

    def of_float64(self) -> Any:
        """The trainer that it makes for float64."""
        if self.program_draws or self.draws:
            raise NotTheSameError("in float64 JAX draws other numbers")
        with jax.enable_x64(False):
            single = self.state()
        return of_float64(self.case.strategy, self.training, single)

    def reference(self, probe: Probe, draws: int, width: float = 1.0) -> ReferenceTrajectory:
        """The numbers, and their deviations. Raises ``ValueError`` where this is no single device."""
        dtype = self.case.contract.compute_dtype

        def beside(draw: int, ulps: float) -> Trajectory:
            return self.train(self.trainer, probe.beside(draw, dtype, ulps))

        runs = [beside(draw, probe.ulps) for draw in range(draws)]
        single = isinstance(self.in_double, NotSupported)
        if single:
            true = self.train(self.trainer, probe)
        else:
            with jax.enable_x64(True):
                true = self.train(self.in_double, probe.in_float64())
        compared = 2 if single else 1
        by = deviations(true, runs, self.case.devices, dtype, width, compared)
        if probe.by_length:
            by = of_changes(by, true, probe.parameters, compared * self.case.devices, width)
        elif true.steps[0].metrics:
            by = of_losses(by, true, [beside(draw, APART) for draw in range(FAR_DRAWS)])
        lengths = spread(true, runs) if dtype in HALVES and probe.what == self.training.what else {}
        return ReferenceTrajectory(true, by, lengths)

    def probed(self) -> Iterator[tuple[str, ReferenceTrajectory]]:
        """The numbers of every probe. One that the trainer refuses on one device, as of an example that is not finite,
        says nothing."""
        state = self.state()
        large = sum(value.size for value in self.training.parameters.values()) > LARGE
        how = (LARGE_DRAWS, LARGE_WIDTH) if large else (PROBE_DRAWS, PROBE_WIDTH)
        for probe in probes(self.case, self.training.parameters, self.training.batches, state):
            with suppress(Exception):
                reference = self.reference(probe, *how)
                dropped = probe.spoiled and np.isfinite(reference.value.steps[0].loss)
                if not (dropped and may_drop_nan(self.trainer.train_step)):
                    yield probe.what, reference

    def train(self, trainer: Any, probe: Probe) -> Trajectory:
        """One run of a probe; of the usual training with the first gradients."""
        first = {}
        if self.gradients and probe.what == self.training.what:
            state, batch = trainer.load(nest(probe.parameters)), place(trainer, nest(probe.batches[0]))
            first = host(canonical(trainer.gradients(state, batch), "gradients"))
        return Trajectory(first, run(trainer, probe)[0])

    def forward(self) -> float:
        """The loss of the forward pass."""
        batch = place(self.trainer, nest(self.training.batches[0]))
        return scalar(self.trainer.loss(self.state(), batch), "loss")

    def spread(self, pieces: Pieces) -> Spread | NotSupported:
        """The first loss and the first gradients, or the first changes, over other random numbers."""
        batch = place(self.trainer, nest(self.training.batches[0]))
        return over_other_keys(self.trainer, self.state, batch, self.gradients, pieces)

    def keys(self) -> tuple[Drawn, ...] | NotSupported:
        """By which the first step draws."""
        return drawn(self.trainer, self.state(), [place(self.trainer, nest(self.training.batches[0]))])


def compiled_in(call: Callable[[], Any]) -> int:
    """How many programs are compiled in a call."""
    with compilations_of() as events:
        call()
    return sum(event in COMPILED for event in events)


def same(one: Step, other: Step) -> bool:
    """Whether two steps computed the same bits, random keys left out."""
    held = [(path, np.asarray(value)) for path, value in leaves(vars(one))]
    beside = {path: np.asarray(value) for path, value in leaves(vars(other))}
    return all(
        value.tobytes() == beside[path].tobytes()
        for path, value in held
        if not jax.numpy.issubdtype(value.dtype, np.uint32)
    )
