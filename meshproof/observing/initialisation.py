"""What ``init`` makes, and what devices hold while it runs."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from meshproof.cases import has_member
from meshproof.contract import Leaves
from meshproof.hlo import Shape
from meshproof.hlo.arrays import held_arrays
from meshproof.measures.initial_values import are_same
from meshproof.measures.layout import LeafLayout
from meshproof.observing.alone import on_one_device
from meshproof.observing.layouts import Layouts, observe_layouts
from meshproof.observing.members import canonical, shown
from meshproof.observing.programs import stage
from meshproof.observing.seen import Facet, NotSupported, Seen, no_lower
from meshproof.observing.state import annotated, array_leaves, host, types_of
from meshproof.observing.subject import Subject

FOR_SPEED = {"xla_backend_optimization_level": 3}
"""XLA's own default, which an observing process does without."""


@dataclass(frozen=True)
class Initialisation(Facet):
    """The state after ``init``, the arrays that a device ``held`` meanwhile, and those that Flax annotates as split.

    ``parameters`` are its values; ``alone`` are those that ``single_device`` makes of the same key. ``types`` has each
    array's dtype and shape.
    """

    held: Seen[set[Shape]]
    parameters: Seen[Leaves]
    alone: Seen[Leaves]
    types: Seen[dict[str, str]]
    layouts: Layouts
    annotated: Seen[tuple[LeafLayout, ...]]


def observe_initialisation(subject: Subject) -> tuple[Initialisation, Any]:
    """The facet, and the state that ``init`` returned. Raises what ``init`` raises: without a state nothing is seen."""
    held = subject.attempt(lambda: _held(subject.strategy.init))
    state = subject.strategy.init(jax.random.key(0))
    if not array_leaves(state):
        raise TypeError(f"init returned {shown(state)}, expected a pytree of jax.Array; JAX finds none in it")
    parameters = subject.attempt(lambda: subject.host(subject.tree("parameters", state)), "parameters")
    alone = subject.attempt(lambda: _alone(subject), "single_device")
    if isinstance(parameters, dict) and isinstance(alone, dict) and differ_in_digits(parameters, alone):
        with suppress(Exception):  # an init that is no program, a compiler that knows no such option
            parameters, alone = _for_speed(subject)
    facet = Initialisation(
        held=held,
        parameters=parameters,
        alone=alone,
        types=types_of(state),
        layouts=observe_layouts(subject, state),
        annotated=subject.attempt(lambda: annotated(state, subject.strategy.mesh)),
    )
    return facet, state


def _alone(subject: Subject) -> Leaves | NotSupported:
    """The parameters that one device makes."""
    trainer = on_one_device(subject.strategy, "float32")
    if lacking := [member for member in ("init", "parameters") if not has_member(trainer, member)]:
        return NotSupported(f"what single_device returns has no {' and no '.join(lacking)}")
    return host(canonical(trainer.parameters(trainer.init(jax.random.key(0))), "parameters"))


def differ_in_digits(seen: Leaves, alone: Leaves) -> bool:
    """Whether a leaf of one stream has other bits: programs that became machine code quickly may round otherwise."""
    return any(
        path in seen and are_same(seen[path], value) and not np.array_equal(seen[path], value)
        for path, value in alone.items()
    )


def _for_speed(subject: Subject) -> tuple[Leaves, Leaves]:
    """The parameters of both, their programs compiled for speed, as users' are."""
    key, found = jax.random.key(0), []
    for trainer in (subject.strategy, on_one_device(subject.strategy, "float32")):
        program = trainer.init.lower(key).compile(compiler_options=FOR_SPEED)
        found.append(subject.host(canonical(trainer.parameters(program(key)), "parameters")))
    mesh, alone = found
    return mesh, alone


def _held(init: Any) -> set[Shape] | NotSupported:
    """The arrays that a device holds while ``init`` runs, where that is one compiled program."""
    if not hasattr(init, "lower"):
        return no_lower("init")
    lowered = stage(init.lower(jax.random.key(0)), "lowered")
    return held_arrays(stage(lowered.compile(), "compiled").as_text())
