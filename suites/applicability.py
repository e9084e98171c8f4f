"""Which cases a clause applies to. What a contract leaves open applies, and is then reported *not supported*."""

from __future__ import annotations

from collections.abc import Callable

from meshproof.cases import Case, has_member
from meshproof.contract import Operation, Part
from meshproof.schedules import count

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


def moves_within_layers(case: Case) -> bool:
    """The budget moves activations otherwise than from one stage of a pipeline to the next, or is left open."""
    lines = case.contract.step
    return distributed(case) and (
        lines is None or any(line.payload == "activations" and line.operation != "collective-permute" for line in lines)
    )


def pipelined(case: Case) -> bool:
    """The strategy shows the schedule of a pipeline."""
    return has_member(case.strategy, "schedule")


def starved(case: Case) -> bool:
    """A pipeline of fewer microbatches than stages."""
    if not pipelined(case):
        return False
    counts = count(case.strategy.schedule)
    return counts.microbatches < counts.stages


def unless(rule: Rule) -> Rule:
    """Not this."""
    return lambda case: not rule(case)


def both(*rules: Rule) -> Rule:
    """All of these."""
    return lambda case: all(rule(case) for rule in rules)
