"""Mutation operators, for ``pytest suites/ --impl tests.saboteurs.operators``: faults planted in any strategy.

Each operator is tried on every page of the book and on its modifiers. The strategies without a fault come first, and
must pass; what an operator finds nothing to harm in has no mutant.
"""

from __future__ import annotations

from collections.abc import Iterator

from reference_impl.forms.base import Form
from tests.saboteurs.operators import (  # noqa: F401 - importing them registers their operators
    collectives,
    computed,
    modified,
    placed,
    running,
)
from tests.saboteurs.operators.bases import bases
from tests.saboteurs.operators.mutation import OPERATORS, mutant, unchecked

__all__ = ["OPERATORS", "mutants", "strategies"]


def mutants() -> Iterator[tuple[Form, str, Form]]:
    """Each strategy without a fault, an operator, and what it makes of it."""
    for healthy in bases():
        twin = unchecked(healthy)
        for name, harm in OPERATORS.items():
            members = harm(twin)
            if members is not None:
                yield healthy, name, mutant(twin, name, members)


def strategies() -> Iterator[Form]:
    """The healthy ones, and then every mutant."""
    yield from bases()
    for _, _, harmed in mutants():
        yield harmed
