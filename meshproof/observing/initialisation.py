"""What ``init`` makes, and what devices hold while it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax

from meshproof.hlo import Shape
from meshproof.hlo.arrays import held_arrays
from meshproof.measures.layout import LeafLayout
from meshproof.observing.layouts import Layouts, observe_layouts
from meshproof.observing.members import shown
from meshproof.observing.programs import stage
from meshproof.observing.seen import Facet, NotSupported, Seen, no_lower
from meshproof.observing.state import annotated, array_leaves
from meshproof.observing.subject import Subject


@dataclass(frozen=True)
class Initialisation(Facet):
    """The state after ``init``, the arrays that a device ``held`` meanwhile, and those that Flax annotates as split."""

    held: Seen[set[Shape]]
    layouts: Layouts
    annotated: Seen[tuple[LeafLayout, ...]]


def observe_initialisation(subject: Subject) -> tuple[Initialisation, Any]:
    """The facet, and the state that ``init`` returned. Raises what ``init`` raises: without a state nothing is seen."""
    held = subject.attempt(lambda: _held(subject.strategy.init))
    state = subject.strategy.init(jax.random.key(0))
    if not array_leaves(state):
        raise TypeError(f"init returned {shown(state)}, expected a pytree of jax.Array; JAX finds none in it")
    facet = Initialisation(
        held=held,
        layouts=observe_layouts(subject, state),
        annotated=subject.attempt(lambda: annotated(state, subject.strategy.mesh)),
    )
    return facet, state


def _held(init: Any) -> set[Shape] | NotSupported:
    """The arrays that a device holds while ``init`` runs, where that is one compiled program."""
    if not hasattr(init, "lower"):
        return no_lower("init")
    lowered = stage(init.lower(jax.random.key(0)), "lowered")
    return held_arrays(stage(lowered.compile(), "compiled").as_text())
