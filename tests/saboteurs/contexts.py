"""Faults of a split sequence that is traded for heads: what is traded, in what order, and whether at all."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax.numpy as jnp
from jax.lax import all_gather, all_to_all, axis_index, axis_size, dynamic_slice_in_dim

from reference_impl.models.layout import Whole
from reference_impl.strategies import context_parallel, context_parallel_all_to_all
from reference_impl.strategies.context_parallel_all_to_all import Heads
from tests.saboteurs.derivations import RING, reduces_again
from tests.saboteurs.planting import Unchecked, plant
from tests.saboteurs.transformers import of_gpt


class FromTheNeighbour(Heads):
    """Heads go to the device after theirs, and what it makes of them comes back as if it were theirs: as many bytes."""

    def attend(self, q: Any, k: Any, v: Any) -> Any:
        """On by one device's heads."""
        own = q.shape[2] // axis_size("context")
        return super().attend(*(jnp.roll(x, own, axis=2) for x in (q, k, v)))


class ForgetsTheOrder(Heads):
    """The parts of the sequence are laid into one another: attention takes a token for another one, and looks ahead."""

    def attend(self, q: Any, k: Any, v: Any) -> Any:
        """The first tokens of all devices, then their second ones."""
        devices = axis_size("context")

        def trade(x: Any) -> Any:
            traded = all_to_all(x, "context", split_axis=2, concat_axis=1, tiled=True)
            return traded.reshape(len(x), devices, -1, *traded.shape[2:]).swapaxes(1, 2).reshape(traded.shape)

        made = Whole.attend(self, trade(q), trade(k), trade(v))
        ordered = made.reshape(len(made), -1, devices, *made.shape[2:]).swapaxes(1, 2).reshape(made.shape)
        return all_to_all(ordered, "context", split_axis=1, concat_axis=2, tiled=True)


class GathersAll(Whole):
    """The right attention, of the whole sequence with all heads on every device."""

    def attend(self, q: Any, k: Any, v: Any) -> Any:
        """Its own part of it."""
        made = super().attend(*(all_gather(x, "context", axis=1, tiled=True) for x in (q, k, v)))
        return dynamic_slice_in_dim(made, axis_index("context") * q.shape[1], q.shape[1], axis=1)


def by(layout: type[Whole]) -> dict[str, Any]:
    """The page's two functions, with another layout."""
    functions = (context_parallel.loss, context_parallel.loss_and_gradients)
    return {function.__name__: partial(function, layout=layout()) for function in functions}


for name, members, clauses in (
    ("healthy_heads_for_tokens", {}, ()),
    ("heads_from_the_neighbour", by(FromTheNeighbour), ("NUM-2", "NUM-4")),
    ("tokens_out_of_order", by(ForgetsTheOrder), ("NUM-2", "NUM-4")),
    ("tokens_of_one_device", by(Whole), ("NUM-2", "NUM-4", "COM-11")),
    ("tokens_gathered", by(GathersAll), ("COM-10", "COM-11")),
    ("heads_reduced_twice", reduces_again(context_parallel_all_to_all, ("data", "context")), ("COM-2",)),
):
    plant(name, of_gpt(Unchecked), context_parallel_all_to_all, RING, *clauses, **members)
