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
from tests.saboteurs.operators.mutation import OPERATORS, mutant


def strategies() -> Iterator[Form]:
    """The healthy ones, and then every mutant of each."""
    for form in bases():
        yield form
        for name, harm in OPERATORS.items():
            members = harm(form)
            if members is not None:
                yield mutant(form, name, members)
