"""What a mutation operator is: from a strategy to the members that plant one fault in it, wherever it has a place.

An operator returns `None` where a strategy has nothing that it could harm. What a strategy has is read from its page's
budget, mappings and type, without a device.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from functools import cached_property
from math import prod
from typing import Any

from reference_impl.forms.base import Form
from reference_impl.forms.manual import ShardMapped
from reference_impl.forms.pmap import Pmap
from tests.saboteurs.planting import UNSAVED

Members = dict[str, Any]
Operator = Callable[[Form], Members | None]

OPERATORS: dict[str, Operator] = {}
"""Every operator by its name, which says the fault and is the variant in a mutant's id."""


def operator(harm: Operator) -> Operator:
    """Register an operator under its function's name."""
    OPERATORS[harm.__name__] = harm
    return harm


PROGRAMS = {"init", "created", "init_parameters", "start", "loss", "gradients", "train_step", "totals", "own_copies"}
"""What a form compiles."""

REACHED: dict[str, set[str]] = {
    "loss_and_gradients": {"gradients", "train_step"},
    "transform": {"init", "created", "start", "train_step"},
    "update": {"train_step"},
    "step": {"train_step"},
    "train_step": {"train_step"},
    "shard_batch": set(),
    "batches": set(),
    "evaluate": set(),
}
"""The programs that a member is part of; any other may be part of all."""


def unchecked(form: Form) -> Form:
    """By hand without JAX's own check of what varies, so that faults which JAX would refuse reach the suites."""
    return replace(form, check_vma=False) if isinstance(form, ShardMapped) else replace(form)


def mutant(form: Form, name: str, members: Members) -> Form:
    """``form`` with some fields and members replaced, and the operator's name in its variant.

    Programs that the fault cannot reach are those of ``form``, so that they are traced once for all its mutants; and so
    is the one device that judges what no truth does.
    """
    given = {field.name: getattr(form, field.name) for field in fields(form)}
    given["variant"] = f"{form.variant}.{name}" if form.variant else name
    own = UNSAVED | {key: value for key, value in members.items() if key not in given}
    for program in PROGRAMS.difference(*(REACHED.get(member, PROGRAMS) for member in members)):
        if isinstance(getattr(type(form), program, None), cached_property):
            own[program] = property(lambda _, program=program: getattr(form, program))
    if hasattr(form, "single_device"):
        own["single_device"] = lambda _, dtype: form.single_device(dtype)
    harmed: Form = type("Mutant", (type(form),), own)(**given | {k: v for k, v in members.items() if k in given})
    return harmed


def is_pmap(form: Form) -> bool:
    """Whether its state has a dimension of devices, and no layout of its own."""
    return isinstance(form, Pmap)


def is_annotated(form: Form) -> bool:
    """Whether the compiler moves what must be moved."""
    return not is_pmap(form) and not isinstance(form, ShardMapped)


def shards(form: Form) -> int:
    """Into how many parts its batches are split."""
    return prod(form.mesh_axes[axis] for axis in form.page.compute.of("batch"))


def method(form: Form, name: str) -> Any:
    """The healthy function of a form's class, to be called with the mutant."""
    return getattr(type(form), name)
