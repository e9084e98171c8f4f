"""Parameters that move as one vector: ZeRO-1 as it is often written by hand."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from meshproof.adopting.seeing import Layouts, Leaf
from meshproof.adopting.traffic import Weight, by_dimension, weights
from meshproof.measures.layout import holds_all


def weighed(
    layouts: Layouts, in_use: Mapping[str, Leaf], frozen: frozenset[str], devices: int
) -> tuple[list[Weight], dict[str, Leaf]]:
    """The parameters with their layouts, and the gradients: where a moment is one vector of all that are trained, which
    devices share, that one in their place. It is whole in use and updated in shards, and so is its gradient."""
    parameters, gradients = layouts.parameters or {}, layouts.gradients or {}
    state = layouts.optimizer_state or {}
    trained = [leaf for path, leaf in parameters.items() if path not in frozen]
    count = sum(prod(leaf.shape) for leaf in trained)
    alone = not any(f"/{name}".endswith(f"/{path}") for name in state for path in parameters)
    for path, leaf in state.items() if alone and not any(each.axes for each in trained) else ():
        if leaf.axes and holds_all(leaf.shape, count, devices):
            size = max(each.itemsize for each in trained)
            return [Weight(path, leaf.shape, size, ((),), ((),), by_dimension(leaf))], {path: leaf}
    return weights(parameters, layouts.optimizer_state, in_use), gradients
