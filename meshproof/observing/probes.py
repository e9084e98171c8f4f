"""Train steps that the first few do not show: later ones, with gradients long enough to clip or so short that nothing
is clipped, with an example that is not finite.

A fault may begin at a step, behind a warm-up, behind a threshold that the first gradients do not reach, in an overflow
that does not happen; and a clip that all gradients reach hides what they were multiplied by. Each probe goes there
directly, in the same way on the mesh and on one device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any

import numpy as np

from meshproof.cases import Case, has_member
from meshproof.contract import Leaves, Step, nest, spec_axes
from meshproof.measures.verdicts import Verdict
from meshproof.observing.alike import Alike
from meshproof.observing.members import canonical, loss_of, other_metrics, state_and_metrics
from meshproof.observing.nan_propagation import propagating
from meshproof.observing.other_states import advanced, shows_rates, with_rates_times
from meshproof.observing.programs import stage
from meshproof.observing.rounding import as_held, is_float, moved, widened
from meshproof.observing.seen import NotSupported, Seen, Unseen
from meshproof.observing.start import Start
from meshproof.observing.state import host, replicas
from meshproof.observing.subject import Subject

LONG = 24
"""Steps of the longest run: a fault may wait for the twentieth, where no counter leads there (as one update of
``MultiSteps(…, 16)``)."""

LATER = (50, 2_000)
"""Steps by which counters are moved on: the first is after a short warm-up, the second near no beginning."""

LONGER = 32.0
"""Factor of the parameters and of the inputs where gradients are to be long, for they grow with every layer; and its
inverse where they are to be short.

A parameter of one element stays: a temperature is often kept as its logarithm, and 32 times that is none.
"""

BY_ULPS = 16.0
"""By how much inputs are moved there to see what rounding explains. A softmax of such parameters is 0 or 1, and does
not feel one ulp; on a mesh its gradients are summed in another order all the same. Of 1,470 runs of 49 healthy trainers
ten were failed without this and without `Probe.by_length`."""

BY_MORE_ULPS = LONGER**3
"""By how much short inputs are moved: what three layers take from them. A loss, or the chances of a class behind a
softmax, are near what they are for any short inputs, do not feel one ulp of these, and are rounded all the same; the
gradient of an entropy is what is left of such digits, and that of a difference of two losses as well. The probe asks
for a factor that a clip has hidden, and no more."""

FASTER = 100.0
"""Factor of the rates that a state shows: a decay of 1e-5 is then above rounding."""


NOT_FINITE = "example that is not finite"
"""What names the probes that are ``spoiled``."""


@dataclass(frozen=True)
class Probe:
    """Training from these parameters on these batches. After the first ``lead`` of them the state is changed, and what
    comes then is judged: everything that a step has, or, ``coarse``, the loss and the auxiliary state. ``by_length``
    judges a parameter by the length of its update, or, where moments are kept, by the largest change in it: what is 0
    but for rounding, as the sum of an element's gradients may be, Adam makes anything of, up to its rate and of either
    sign. ``ulps`` are those by which inputs are moved to see what rounding explains. ``spoiled``: an example is not
    finite, and what comes of it must not be lost."""

    what: str
    parameters: Leaves
    batches: tuple[Leaves, ...]
    lead: int = 0
    change: Callable[[Any], Any] | None = None
    coarse: bool = False
    by_length: bool = False
    ulps: float = 1.0
    spoiled: bool = False

    def beside(self, draw: int, dtype: str, ulps: float) -> Probe:
        """The same from start values and inputs that lie so many units in the last place beside."""
        parameters, *batches = moved((self.parameters, *self.batches), draw, dtype, ulps)
        return replace(self, parameters=parameters, batches=tuple(batches))

    def in_float64(self) -> Probe:
        """The same from the same numbers in float64."""
        return replace(self, parameters=widened(self.parameters), batches=tuple(map(widened, self.batches)))


def probes(case: Case, parameters: Leaves, batches: Sequence[Leaves], state: Any) -> Iterator[Probe]:
    """Every probe of a case. ``state`` is one of its states, which says what there is to change."""
    several = tuple(batches)
    long = several * (LONG // len(several) + 1)
    yield Probe(f"{LONG} steps", parameters, long[:LONG], coarse=True)
    for later in LATER:
        change = partial(advanced, by=later)
        yield Probe(f"{later:,} steps later", parameters, (*several, *several[:2]), len(several), change)
    if shows_rates(state):
        faster = partial(with_rates_times, factor=FASTER)
        yield Probe(f"rates times {FASTER:g}", parameters, several[:3], 1, faster)
    mask = {path: value for path, value in several[0].items() if path == case.contract.mask}
    single = {path: value for path, value in parameters.items() if value.size == 1}
    for factor, ulps, how in ((LONGER, BY_ULPS, f"{LONGER:g}"), (1 / LONGER, BY_MORE_ULPS, f"1/{LONGER:g}")):
        batch, held = times(several[0], factor) | mask, times(parameters, factor) | single
        yield Probe(f"parameters and inputs times {how}", held, (batch,), by_length=True, ulps=ulps)
    if any(map(is_float, several[0].values())):
        for which, row in (("last", -1), ("first", 0)):
            batches = (not_finite(several[0], row), *several[1:2])
            yield Probe(f"a {which} {NOT_FINITE}", parameters, batches, spoiled=True)
    if case.contract.mask in several[0]:
        yield Probe(
            "a mask that leaves out most rows, and all of the last device's", parameters, (thinned(case, several[0]),)
        )
    if case.contract.routed:
        yield Probe("one example in every row", parameters, (repeated(several[0]),))


@dataclass(frozen=True)
class Probed:
    """The steps of a probe that are judged, and whether copies on several devices are one in the last state; ``None``
    where it need not be finite."""

    steps: tuple[Step, ...]
    replicas: Verdict | None


def observe_probes(subject: Subject, start: Start) -> Seen[dict[str, Seen[Probed]]]:
    """What became of every probe, by its name, where a single device can say what its steps must be."""
    parameters = start.parameters
    if subject.has("truth"):
        return NotSupported("the implementation brings its truth")
    if isinstance(parameters, Unseen):
        return parameters

    def look() -> dict[str, Seen[Probed]]:
        given = [as_held(tree) for tree in (nest(parameters), *subject.host_batches)]
        every = probes(subject.case, given[0], given[1:], subject.fresh())
        trainer = Alike(subject.strategy)
        return {probe.what: subject.attempt(partial(probed, subject, trainer, probe)) for probe in every}

    return subject.attempt(look, "single_device", "load")


def probed(subject: Subject, trainer: Any, probe: Probe) -> Probed:
    """One of them."""
    steps, state = run(trainer, probe)
    if probe.spoiled:
        return Probed(steps, None)
    copies = replicas(subject.shown(state))
    return Probed(steps, replace(copies, part=f"copies on several devices, {probe.what}"))


def run(trainer: Any, probe: Probe) -> tuple[tuple[Step, ...], Any]:
    """The steps that are judged, and the state that the last one leaves."""
    state, steps = trainer.load(nest(probe.parameters)), []
    train_step = propagating(trainer.train_step) if probe.spoiled else trainer.train_step
    for number, batch in enumerate(probe.batches):
        if number == probe.lead and probe.change:
            state = probe.change(state)
        state, metrics = state_and_metrics(train_step(state, place(trainer, nest(batch))))
        if number >= probe.lead:
            steps.append(step_of(trainer, state, metrics, probe.coarse))
    if probe.by_length:
        steps = [replace(step, parameters=lengths(probe.parameters, step)) for step in steps]
    return tuple(steps), state


def lengths(before: Leaves, step: Step) -> Leaves:
    """The Euclidean length of each parameter's change, in float64; where the step shows moments, the largest change."""
    moments = any(value.ndim and is_float(value) for value in step.optimizer_state.values())
    what, order = ("the largest change", np.inf) if moments else ("the length of its update", None)
    changes = {path: np.ravel(value.astype(float) - before[path]) for path, value in step.parameters.items()}
    return {f"{path}, {what},": np.asarray(np.linalg.norm(change, order)) for path, change in changes.items()}


def place(trainer: Any, batch: Any) -> Any:
    """The batch as the trainer takes it."""
    return trainer.shard_batch(batch) if has_member(trainer, "shard_batch") else batch


def lowered(trainer: Any, probe: Probe) -> Any:
    """The step's program before it is compiled. Raises where ``train_step`` has no ``lower``."""
    state, batch = trainer.load(nest(probe.parameters)), place(trainer, nest(probe.batches[0]))
    return stage(trainer.train_step.lower(state, batch), "lowered")


def step_of(trainer: Any, state: Any, metrics: Any, coarse: bool = False) -> Step:
    """What a step has computed, as far as the trainer shows it."""

    def of(part: str) -> Leaves:
        return host(canonical(getattr(trainer, part)(state), part)) if has_member(trainer, part) else {}

    if coarse:
        return Step(loss_of(metrics), {}, {}, {}, of("auxiliary"))
    parameters, moments, auxiliary = map(of, ("parameters", "optimizer_state", "auxiliary"))
    return Step(loss_of(metrics), parameters, moments, other_metrics(metrics), auxiliary)


def times(tree: Leaves, factor: float) -> Leaves:
    """Every float times a factor."""
    return {path: (value * factor).astype(value.dtype) if is_float(value) else value for path, value in tree.items()}


def not_finite(batch: Leaves, row: int) -> Leaves:
    """The batch with one infinite example, which one device has. A mask stays: it would spoil the mean of all."""

    def spoil(value: np.ndarray) -> np.ndarray:
        spoiled = value.copy()
        spoiled[row] = np.inf
        return spoiled

    floats = [path for path, value in batch.items() if is_float(value)]
    measured = [path for path in floats if not np.isin(batch[path], (0, 1)).all()]
    return batch | {path: spoil(batch[path]) for path in measured or floats}


def thinned(case: Case, batch: Leaves) -> Leaves:
    """The batch with a mask that counts every row of the first device, every second of the next one, and so on; of the
    last one none."""
    name = str(case.contract.mask)
    mask = batch[name]
    axes = [axis for spec in (case.contract.batch or {}).values() for axis in spec_axes(spec[:1])]
    rows = len(mask) // (prod(case.mesh[axis] for axis in dict.fromkeys(axes)) or 1) or 1
    kept = np.array([row % (1 + row // rows) == 0 for row in range(len(mask))])
    kept[-rows:] &= rows == len(mask)
    return batch | {name: mask * kept.reshape(-1, *[1] * (mask.ndim - 1)).astype(mask.dtype)}


def repeated(batch: Leaves) -> Leaves:
    """The batch with its first example in every row, which one expert or few get."""
    return {path: np.broadcast_to(value[:1], value.shape).copy() for path, value in batch.items()}
