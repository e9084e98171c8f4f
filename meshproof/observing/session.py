"""Runs and compiles one case, once, and returns everything the clauses need as a frozen `Observation`.

Each facet is observed by a module of its own. The order matters: programs are compiled before anything calls the train
step, which then takes the same executable, and training donates the state that all before it look at. Whatever raises
is recorded where it belongs and stops nothing else.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path

import jax

from meshproof.cases import Case
from meshproof.observing.auxiliary import observe_auxiliary
from meshproof.observing.draws import observe_draws
from meshproof.observing.gradients import observe_gradients
from meshproof.observing.initialisation import observe_initialisation
from meshproof.observing.lost_examples import observe_lost_examples
from meshproof.observing.observation import Observation, Warned
from meshproof.observing.probes import observe_probes
from meshproof.observing.programs import observe_programs
from meshproof.observing.refusals import observe_refusals
from meshproof.observing.seen import NotSupported, Unseen
from meshproof.observing.single_device_truth import Retraced, SingleDevice, observe_single_device
from meshproof.observing.start import Start, observe_start
from meshproof.observing.state import array_leaves, is_gone
from meshproof.observing.subject import Subject
from meshproof.observing.training import observe_training


def observe(case: Case, cases: Sequence[Case] = (), checkpoints: bool = True) -> Observation:
    """Observe a case on this process's devices, as one of ``cases``, with or without what becomes of its checkpoints.
    Raises only where no state can be made at all.

    Float32 matrix products are asked for at float32 precision, so that a device's faster default is not taken for a
    fault of the strategy.
    """
    with warnings.catch_warnings(record=True) as caught, jax.default_matmul_precision("float32"):
        warnings.simplefilter("default")
        subject = Subject(case, cases, checkpoints)
        initialisation, initial = observe_initialisation(subject)
        state = subject.fresh() if subject.canonical_start else initial
        start = observe_start(subject, state)
        programs = observe_programs(subject, state)
        alone = _single_device(subject, start)
        auxiliary = observe_auxiliary(subject, state)
        gradients = observe_gradients(subject, state)
        gone = any(is_gone(array) for _, array in array_leaves(state))
        training = observe_training(subject, subject.fresh() if gone else state, initialisation.types)
        lost_examples = observe_lost_examples(subject, training, alone)
        probes = alone.truth if isinstance(alone.truth, Retraced) else observe_probes(subject, start)
        draws = observe_draws(subject)
        refusals = observe_refusals(subject)
    return Observation(
        case=case.id,
        initialisation=initialisation,
        start=start,
        programs=programs,
        single_device=alone,
        auxiliary=auxiliary,
        gradients=gradients,
        training=training,
        lost_examples=lost_examples,
        probes=probes,
        draws=draws,
        refusals=refusals,
        warnings=warnings_of(caught),
    )


def warnings_of(caught: Iterable[warnings.WarningMessage]) -> tuple[Warned, ...]:
    """Each of these warnings once."""
    told = {Warned(each.category.__name__, str(each.message), _place(each.filename, each.lineno)) for each in caught}
    return tuple(sorted(told))


def _single_device(subject: Subject, start: Start) -> SingleDevice:
    if subject.has("truth"):
        return SingleDevice.unseen(NotSupported("the implementation brings its truth"))
    parameters = start.parameters
    if isinstance(parameters, Unseen):
        return SingleDevice.unseen(parameters)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what double precision makes of the trainer, which nobody else asks for
        return subject.facet(SingleDevice, lambda: observe_single_device(subject, parameters), "single_device")


def _place(file: str, line: int) -> str:
    """A line of code, by the path that it is imported from."""
    roots = [root for root in map(Path, sys.path) if root in Path(file).parents]
    return f"{Path(file).relative_to(max(roots, key=lambda root: len(root.parts), default=Path()))}:{line}"
