"""How a fault is planted: a page under another name, with something replaced."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from meshproof.cases import case_id
from reference_impl.forms.base import Form
from reference_impl.forms.manual import Manual
from reference_impl.models import Model
from reference_impl.page import Page
from reference_impl.truth import Momentum

ONE, DATA, MODEL, BOTH = {"data": 1}, {"data": 8}, {"model": 8}, {"data": 2, "model": 4}

CAUGHT_BY: dict[str, set[str]] = {}
"""Case to the clauses of which each must fail on it; empty for the healthy ones."""

PLANTED: list[Any] = []
"""Every strategy, in the order in which it was planted."""


UNSAVED: dict[str, None] = dict.fromkeys(("save", "save_async", "restore"))
"""Members that a fault of anything else goes without: checkpoints are a third of what judging it would take."""

Unchecked = partial(Manual, check_vma=False)
"""The manual form without JAX's own check that replicated outputs are replicated: faults reach the suites."""


def plant(
    name: str,
    form: Callable[..., Form],
    page: Page,
    axes: dict[str, int],
    *caught_by: str,
    network: Model | None = None,
    another_case: bool = False,
    **members: Any,
) -> None:
    """One strategy: ``page`` under another name, with some of its members replaced.

    A fault of several cases says ``another_case=True`` from its second on, and each case has clauses of its own. Raises
    ``ValueError`` where a name is planted again without that, where it has no first case, and for the same case again.
    """
    given = {} if network is None else {"network": network}
    planted = form(replace(page, name=name, **members), axes, Momentum(), **given)
    case, others = case_id(planted), [case_id(other) for other in PLANTED if other.name == name]
    if case in others:
        raise ValueError(f"{case} is planted twice: expected each case once")
    if others and not another_case:
        raise ValueError(
            f"{case}: {name} is planted already, as {', '.join(others)}: give this fault a name of its own, or "
            f"another_case=True where both are meant"
        )
    if another_case and not others:
        raise ValueError(f"{case}: another_case=True, but no other case of {name} is planted before it")
    if caught_by and not any(clause.startswith("CKP") for clause in caught_by):
        vars(planted).update(UNSAVED)
    PLANTED.append(planted)
    CAUGHT_BY[case] = set(caught_by)


def plant_stranger(trainer: Any, *caught_by: str) -> None:
    """A trainer that is none of the book's, as it is. Raises ``ValueError`` where its case is planted already."""
    case = case_id(trainer)
    if case in CAUGHT_BY:
        raise ValueError(f"{case} is planted twice: expected each case once")
    PLANTED.append(trainer)
    CAUGHT_BY[case] = set(caught_by)
