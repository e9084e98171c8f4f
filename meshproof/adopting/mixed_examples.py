"""Examples that a loss mixes with those of other devices, as mixup does.

Were what data parallelism moves in its forward pass of activations, gradients would come back. What a step moves as it
is, and returns nothing for, is of the batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from meshproof.adopting.traffic import Seen


def mixed(forward: Iterable[Seen], step: Iterable[Seen], batch_axes: set[str]) -> tuple[list[Seen], list[Seen]]:
    """What a forward pass and a step move, where activations that have no gradient are examples."""
    first, whole = list(forward), list(step)
    returned = {axes for operation, axes, what in (each.lane for each in whole) if operation == "reduce-scatter"}
    alike = [
        each
        for each in first
        if first.count(each) == whole.count(each)
        and each.lane[2] == "activations"
        and each.lane[0] in ("all-gather", "collective-permute")
        and set(each.lane[1]) <= batch_axes - {axis for axes in returned for axis in axes}
    ]
    return _named(first, alike), _named(whole, alike)


def _named(of: Iterable[Seen], alike: list[Seen]) -> list[Seen]:
    return [replace(each, lane=(*each.lane[:2], "examples")) if each in alike else each for each in of]
