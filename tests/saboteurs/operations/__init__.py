"""Planted operations, transforms, programs and more: ``pytest suites/ --operations tests.saboteurs.operations``.

Each has one fault and its name; `CAUGHT_BY` has, beside its id, the clause that must catch it and what is said of it.
``healthy_*`` are the same without a fault, and must pass.
"""

from tests.saboteurs.operations import composed, growing, planted, stacked

__all__ = ["CAUGHT_BY", "operations", "programs", "stacked_layers", "transforms"]

CAUGHT_BY = planted.CAUGHT_BY | composed.CAUGHT_BY | growing.CAUGHT_BY | stacked.CAUGHT_BY


def operations():
    """The healthy ones, and one for each fault."""
    return planted.PLANTED


def transforms():
    """The healthy ones, and one for each fault."""
    return composed.PLANTED


def programs():
    """The healthy ones, and one for each fault."""
    return growing.PLANTED


def stacked_layers():
    """The healthy ones, and one for each fault."""
    return stacked.PLANTED
