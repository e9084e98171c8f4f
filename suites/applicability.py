"""Which cases a clause applies to. What a contract leaves open applies, and is then reported *not supported*."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

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
    """The contract splits a leaf of this part over an axis of more than one device, or leaves it open."""

    def rule(case: Case) -> bool:
        specs = getattr(case.contract, part)
        return distributed(case) and (
            specs is None or any(case.mesh[axis] > 1 for spec in specs.values() for axis in mesh_axes(spec))
        )

    return rule


def mesh_axes(spec: Iterable[str | tuple[str, ...] | None]) -> Iterator[str]:
    """Every mesh axis of a spec."""
    for entry in spec:
        yield from () if entry is None else (entry,) if isinstance(entry, str) else entry


def moves(payload: str, operation: Operation | None = None) -> Rule:
    """The budget has a line for this payload, or is left open."""
    return lambda case: distributed(case) and (case.contract.step is None or case.contract.moves(payload, operation))


def moves_not(payload: str) -> Rule:
    """The budget has no line for this payload, or is left open."""
    return lambda case: case.contract.step is None or not case.contract.moves(payload)


def both(*rules: Rule) -> Rule:
    """All of these."""
    return lambda case: all(rule(case) for rule in rules)
