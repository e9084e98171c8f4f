"""Faults of products that are made while operands travel: where a part belongs, who adds to it, how often it goes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax.numpy as jnp
from jax.lax import axis_index, axis_size

from reference_impl.strategies import sequence_parallel_collective_matmul, sequence_parallel_shard_map
from reference_impl.strategies.sequence_parallel_collective_matmul import (
    BOTH,
    PAGE,
    Decomposed,
    from_previous_device,
    gather_multiply,
    multiply_scatter,
)
from tests.saboteurs.contexts import by
from tests.saboteurs.derivations import reduces_again
from tests.saboteurs.planting import BOTH as WIDE
from tests.saboteurs.planting import Unchecked, plant
from tests.saboteurs.transformers import of_gpt


class InOrderOfArrival(Decomposed):
    """The parts of the sequence lie as they came by, from another device's on, in every device otherwise."""

    def products(self, subscripts: str, x: Any, kernels: Sequence[Any], over: str, axes: Any) -> list[Any]:
        """Undoes what puts them in order."""
        shift = -(axis_index("model") + 1) * x.shape[1]
        return [jnp.roll(y, shift, axis=1) for y in gather_multiply(subscripts, x, kernels)]


class EndsAtTheNeighbour(Decomposed):
    """Each part of a sum goes home to the device after its own."""

    def product(self, subscripts: str, x: Any, w: Any, over: str, axes: Any) -> Any:
        """Of the part before its own."""
        if not PAGE.compute.of(over):
            return super().product(subscripts, x, w, over, axes)
        return multiply_scatter(subscripts, jnp.roll(x, x.shape[1] // axis_size("model"), axis=1), w)


class AddsItsOwnTwice(Decomposed):
    """The device at which a part of a sum comes home has added to it already."""

    def product(self, subscripts: str, x: Any, w: Any, over: str, axes: Any) -> Any:
        """And its own part once more."""
        y = super().product(subscripts, x, w, over, axes)
        if not PAGE.compute.of(over):
            return y
        return y + jnp.einsum(subscripts, sequence_parallel_shard_map.own_part({"x": x})["x"], w)


class ThreeRings(Decomposed):
    """The sequence goes round once for each of query, key and value: the same numbers."""

    def products(self, subscripts: str, x: Any, kernels: Sequence[Any], over: str, axes: Any) -> list[Any]:
        """With each kernel on a ring of its own; the three are told apart so that nobody merges them."""
        scales = (1.0, 2.0, 4.0)
        return [gather_multiply(subscripts, x * s, [w])[0] / s for s, w in zip(scales, kernels, strict=True)]


class GoesRoundFirst(Decomposed):
    """What enters a region goes all the way round first, and then as it should: the same numbers."""

    def enter(self, x: Any, into: str) -> Any:
        """Back at home."""
        for _ in range(axis_size("model")):
            x = from_previous_device(x)
        return x


planted = partial(by, sequence_parallel_shard_map.PAGE)
"""The page's two functions with another layout."""

for name, members, clauses in (
    ("healthy_collective_matmul", {}, ()),
    ("parts_in_order_of_arrival", planted(InOrderOfArrival), ("NUM-2", "NUM-4")),
    ("sums_end_at_the_neighbour", planted(EndsAtTheNeighbour), ("NUM-2", "NUM-4")),
    ("own_part_added_twice", planted(AddsItsOwnTwice), ("NUM-2", "NUM-4")),
    ("three_rings", planted(ThreeRings), ("COM-5", "COM-11")),
    ("round_before_the_ring", planted(GoesRoundFirst), ("COM-5", "COM-11")),
    ("decomposed_reduced_twice", reduces_again(sequence_parallel_collective_matmul.PAGE, BOTH), ("COM-2",)),
):
    plant(name, of_gpt(Unchecked), sequence_parallel_collective_matmul.PAGE, WIDE, *clauses, **members)
