"""What an optimizer keeps of parameters: a moment of each, or one vector of all."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase
from math import prod

from jax.sharding import PartitionSpec

from meshproof.cases import Case
from meshproof.contract import spec_axes
from meshproof.measures.layout import LeafLayout, holds_all


def moments(parameters: Iterable[LeafLayout], state: Collection[LeafLayout]) -> dict[str, tuple[LeafLayout, set[str]]]:
    """By path of a parameter, one of its moments with the axes that split it: they share their last keys and shape."""
    return {
        parameter.path: (leaf, set(spec_axes(leaf.declared or ())))
        for parameter in parameters
        for leaf in state
        if f"/{leaf.path}".endswith(f"/{parameter.path}") and leaf.shape == parameter.shape
    }


def raveled(case: Case, parameters: Iterable[LeafLayout], state: Collection[LeafLayout]) -> LeafLayout | None:
    """A moment of all parameters in one vector, with the padding that devices need to share it. (ZeRO-1 as it is often
    written by hand: then gradients are reduced, and parameters gathered, as one such vector.)"""
    trained = [leaf for leaf in parameters if gradient_layout(case, leaf) is not None]
    if any(spec_axes(leaf.declared or ()) for leaf in trained) or moments(trained, state):
        return None
    count = sum(prod(leaf.shape) for leaf in trained)
    shared = (leaf for leaf in state if spec_axes(leaf.declared or ()))
    return next((leaf for leaf in shared if holds_all(leaf.shape, count, case.devices)), None)


def gradient_layout(case: Case, leaf: LeafLayout) -> PartitionSpec | None:
    """As the contract declares it; ``None``: the parameter is frozen."""
    given = (case.contract.gradients or {}).items()
    return next((spec for pattern, spec in given if fnmatchcase(leaf.path, pattern)), None)
