"""Which stacked layers are tried with which optimizers, and how many they are."""

from __future__ import annotations

from collections.abc import Iterator

from meshproof.operations.stacked.linen_layers import LINEN
from meshproof.operations.stacked.nnx_layers import SCANNED, UNNAMED, VMAPPED
from meshproof.operations.stacked.observing import StackedCase
from meshproof.operations.stacked.plain import PLAIN
from meshproof.operations.stacked.plan import Plan, StackedLayers, Transformation
from meshproof.operations.stacked.transformations import TRANSFORMATIONS

OVER_DATA, DIVIDES_ALL, DIVIDES_DATA, DIVIDES_NONE = Plan(8, "data"), Plan(8), Plan(6), Plan(3)
"""Numbers of layers that the mesh axes, of 2 and of 4 devices, divide, and numbers that they do not."""

MOMENTUM, ADAM, *OTHERS = TRANSFORMATIONS


def stacked_cases() -> Iterator[StackedCase]:
    """Every way of stacking with momentum and Adam; what optax composes, with layers that do not divide the mesh."""
    for stack in (PLAIN, VMAPPED, LINEN):
        yield from planned(stack, (MOMENTUM, ADAM), (OVER_DATA, DIVIDES_ALL, DIVIDES_DATA, DIVIDES_NONE))
        yield from planned(stack, OTHERS, (DIVIDES_DATA,))
    yield from planned(SCANNED, (MOMENTUM, ADAM), (OVER_DATA, DIVIDES_DATA))
    yield from planned(UNNAMED, (MOMENTUM, ADAM), (DIVIDES_ALL, DIVIDES_DATA))


def planned(
    stack: StackedLayers, transformations: tuple[Transformation, ...] | list[Transformation], plans: tuple[Plan, ...]
) -> Iterator[StackedCase]:
    """One case for each optimizer and plan."""
    for transformation in transformations:
        for plan in plans:
            yield StackedCase(stack, transformation, plan)
