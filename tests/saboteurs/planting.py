"""How a fault is planted: a page under another name, with something replaced."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

from reference_impl.forms.base import Form
from reference_impl.forms.manual import Manual
from reference_impl.models import Model
from reference_impl.truth import Momentum

ONE, DATA, MODEL, BOTH = {"data": 1}, {"data": 8}, {"model": 8}, {"data": 2, "model": 4}

CAUGHT_BY: dict[str, set[str]] = {}
"""Strategy name to the clauses of which each must fail; empty for the healthy ones."""

PLANTED: list[Form] = []
"""Every strategy, in the order in which it was planted."""


Unchecked = partial(Manual, check_vma=False)
"""The manual form without JAX's own check that replicated outputs are replicated: faults reach the suites."""


def plant(
    name: str,
    form: Callable[..., Form],
    page: Any,
    axes: dict[str, int],
    *caught_by: str,
    network: Model | None = None,
    **members: Any,
) -> None:
    """One strategy: ``page`` under another name, with some of its members replaced."""
    renamed = ModuleType(name)
    renamed.__dict__.update({key: value for key, value in vars(page).items() if not key.startswith("__")} | members)
    given = {} if network is None else {"network": network}
    PLANTED.append(form(renamed, axes, Momentum(), **given))
    CAUGHT_BY[name] = set(caught_by)
