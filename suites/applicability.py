"""Which cases a clause applies to. What a contract leaves open applies, and is then reported *not supported*."""

from __future__ import annotations

from collections.abc import Callable

from meshproof.cases import Case
from meshproof.contract import Operation, Part

Rule = Callable[[Case], bool]


def on_one_device(case: Case) -> bool:
    """The yardstick: nothing is distributed."""
    return case.devices == 1


def distributed(case: Case) -> bool:
    """More than one device."""
    return case.devices > 1


def splits(part: Part) -> Rule:
    """The contract splits a leaf of this part over the mesh, or leaves it open."""

    def rule(case: Case) -> bool:
        specs = getattr(case.contract, part)
        return distributed(case) and (specs is None or any(any(spec) for spec in specs.values()))

    return rule


def moves(payload: str, operation: Operation | None = None) -> Rule:
    """The budget has a line for this payload, or is left open."""
    return lambda case: distributed(case) and (case.contract.step is None or case.contract.moves(payload, operation))


def moves_not(payload: str) -> Rule:
    """The budget has no line for this payload, or is left open."""
    return lambda case: case.contract.step is None or not case.contract.moves(payload)


def accumulates(case: Case) -> bool:
    """A step takes its batch in several parts."""
    return case.contract.microbatches > 1


def masks(case: Case) -> bool:
    """Batches are padded."""
    return case.contract.mask is not None


def in_float32(case: Case) -> bool:
    """All is computed in float32."""
    return case.contract.compute_dtype == "float32"


def mixed(case: Case) -> bool:
    """Products and activations are computed in fewer digits than parameters, gradients and loss. MIX-1 judges those."""
    return not in_float32(case)


def both(*rules: Rule) -> Rule:
    """All of these."""
    return lambda case: all(rule(case) for rule in rules)
