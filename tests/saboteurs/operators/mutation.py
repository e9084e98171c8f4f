"""What a mutation operator is: from a strategy to the members that plant one fault in it, wherever it has a place.

An operator returns `None` where a strategy has nothing that it could harm. What a strategy has is read from its page's
budget, mappings and type, without a device.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from math import prod
from typing import Any

from reference_impl.forms.base import Form
from reference_impl.forms.manual import Manual
from reference_impl.forms.pmap import Pmap

Members = dict[str, Any]
Operator = Callable[[Form], Members | None]

OPERATORS: dict[str, Operator] = {}
"""Every operator by its name, which says the fault and is the variant in a mutant's id."""


def operator(harm: Operator) -> Operator:
    """Register an operator under its function's name."""
    OPERATORS[harm.__name__] = harm
    return harm


def mutant(form: Form, name: str, members: Members) -> Form:
    """``form`` with some fields and members replaced, and the operator's name in its variant.

    By hand it runs without JAX's own check of what varies, so that faults which JAX would refuse reach the suites.
    """
    given = {field.name: getattr(form, field.name) for field in fields(form)}
    given["variant"] = f"{form.variant}.{name}" if form.variant else name
    if "check_vma" in given:
        given["check_vma"] = False
    own = {key: value for key, value in members.items() if key not in given}
    harmed: Form = type("Mutant", (type(form),), own)(**given | {k: v for k, v in members.items() if k in given})
    return harmed


def is_pmap(form: Form) -> bool:
    """Whether its state has a dimension of devices, and no layout of its own."""
    return isinstance(form, Pmap)


def is_annotated(form: Form) -> bool:
    """Whether the compiler moves what must be moved."""
    return not is_pmap(form) and not isinstance(form, Manual)


def shards(form: Form) -> int:
    """Into how many parts its batches are split."""
    return prod(form.mesh_axes[axis] for axis in form.page.COMPUTE.of("batch"))


def method(form: Form, name: str) -> Any:
    """The healthy function of a form's class, to be called with the mutant."""
    return getattr(type(form), name)
