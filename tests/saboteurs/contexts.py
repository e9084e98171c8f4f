"""Faults of a split sequence, traded for heads or its keys gathered: what moves, in what order, and whether at all."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax.numpy as jnp
from jax.lax import (
    all_gather,
    all_to_all,
    axis_index,
    axis_size,
    dynamic_slice_in_dim,
    dynamic_update_slice_in_dim,
    stop_gradient,
)

from reference_impl.models.attention import weighted
from reference_impl.models.gpt import GPT
from reference_impl.models.layout import Layout
from reference_impl.modifiers.rematerialisation import Rematerialised
from reference_impl.strategies import context_parallel, context_parallel_all_gather, context_parallel_all_to_all
from reference_impl.strategies.context_parallel import BOTH
from reference_impl.strategies.context_parallel_all_gather import Gathered
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

        made = Layout.attend(self, trade(q), trade(k), trade(v))
        ordered = made.reshape(len(made), -1, devices, *made.shape[2:]).swapaxes(1, 2).reshape(made.shape)
        return all_to_all(ordered, "context", split_axis=1, concat_axis=2, tiled=True)


class GathersAll(Layout):
    """The right attention, of the whole sequence with all heads on every device."""

    def attend(self, q: Any, k: Any, v: Any) -> Any:
        """Its own part of it."""
        made = super().attend(*(all_gather(x, "context", axis=1, tiled=True) for x in (q, k, v)))
        return dynamic_slice_in_dim(made, axis_index("context") * q.shape[1], q.shape[1], axis=1)


class StartsOver(Gathered):
    """Every device takes its own tokens for the first ones: its queries see too few keys. The same bytes."""

    def attend(self, q: Any, k: Any, v: Any) -> Any:
        """Of all keys, from position 0."""
        return weighted(q, *all_gather((k, v), "context", axis=1, tiled=True), first_query=0)


class FromTheNext(Gathered):
    """Keys and values are laid out from the next device's on: as many bytes, at other positions."""

    def attend(self, q: Any, k: Any, v: Any) -> Any:
        """Of all keys, a device's length too early."""
        k, v = (jnp.roll(x, -q.shape[1], axis=1) for x in all_gather((k, v), "context", axis=1, tiled=True))
        return weighted(q, k, v, axis_index("context") * q.shape[1])


class KeepsGradients(Gathered):
    """What others' queries ask of a device's keys and values does not come back to it: the forward pass is right."""

    def attend(self, q: Any, k: Any, v: Any) -> Any:
        """Of all keys, of which its own alone are differentiated."""
        start = axis_index("context") * q.shape[1]

        def gather(x: Any) -> Any:
            others = stop_gradient(all_gather(x, "context", axis=1, tiled=True))
            return dynamic_update_slice_in_dim(others, x, start, axis=1)

        return weighted(q, gather(k), gather(v), start)


def by(page: Any, layout: type[Layout]) -> dict[str, Any]:
    """The two functions of a page whose layout is an argument, with another one."""
    return {function.__name__: partial(function, layout=layout()) for function in (page.loss, page.loss_and_gradients)}


for name, members, clauses in (
    ("healthy_heads_for_tokens", {}, ()),
    ("heads_from_the_neighbour", by(context_parallel.PAGE, FromTheNeighbour), ("NUM-2", "NUM-4")),
    ("tokens_out_of_order", by(context_parallel.PAGE, ForgetsTheOrder), ("NUM-2", "NUM-4")),
    ("tokens_of_one_device", by(context_parallel.PAGE, Layout), ("NUM-2", "NUM-4", "COM-11")),
    ("tokens_gathered", by(context_parallel.PAGE, GathersAll), ("COM-10", "COM-11")),
    ("heads_reduced_twice", reduces_again(context_parallel_all_to_all.PAGE, BOTH), ("COM-2",)),
):
    plant(name, of_gpt(Unchecked), context_parallel_all_to_all.PAGE, RING, *clauses, **members)

for name, members, clauses in (
    ("healthy_gathered_keys", {}, ()),
    ("queries_start_over", by(context_parallel.PAGE, StartsOver), ("NUM-2", "NUM-4")),
    ("keys_from_the_next", by(context_parallel.PAGE, FromTheNext), ("NUM-2", "NUM-4")),
    ("keys_keep_their_gradients", by(context_parallel.PAGE, KeepsGradients), ("NUM-2", "COM-11")),
    ("queries_gathered_too", by(context_parallel.PAGE, GathersAll), ("COM-11",)),
    ("gathered_reduced_twice", reduces_again(context_parallel_all_gather.PAGE, BOTH), ("COM-2",)),
):
    plant(name, of_gpt(Unchecked), context_parallel_all_gather.PAGE, RING, *clauses, **members)

plant("healthy_ring_alone", of_gpt(Unchecked), context_parallel.PAGE, {"data": 1, "context": 8})
plant("healthy_trades_anew", of_gpt(Unchecked, Rematerialised(GPT())), context_parallel_all_to_all.PAGE, RING)
