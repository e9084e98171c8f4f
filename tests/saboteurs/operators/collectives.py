"""Faults in collectives: in whatever a page's own program calls of them on more than a metric."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
from jax.lax import axis_size, optimization_barrier, psum_scatter

from reference_impl.forms.base import Form
from reference_impl.forms.pipelined import Pipelined
from reference_impl.page import Line
from tests.saboteurs.operators.mutation import Members, Operator, is_annotated, is_pmap, method, operator

ALL_REDUCES = ("psum", "pmean")
GATHERS = ("all_gather", "all_gather_invariant")


@dataclass(frozen=True)
class Call:
    """One call of a collective: ``call(x)`` does it."""

    name: str
    function: Callable[..., Any]
    axes: Any
    rest: tuple[Any, ...]
    options: dict[str, Any]

    def __call__(self, x: Any) -> Any:
        """Do it."""
        return self.function(x, self.axes, *self.rest, **self.options)


Harm = Callable[[Call, Any], Any]
"""From a call and its array to what it then returns."""


@contextmanager
def replaced(names: tuple[str, ...], harm: Harm) -> Iterator[None]:
    """Everywhere in the book these functions of ``jax.lax`` are harmed ones."""

    def harmed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def collective(tree: Any, axes: Any, *rest: Any, **options: Any) -> Any:
            call = Call(name, function, axes, rest, options)
            return jax.tree.map(lambda x: harm(call, x) if jnp.ndim(x) and axes else call(x), tree)

        return collective

    book = [jax.lax, *(module for name, module in sys.modules.items() if name.startswith("reference_impl"))]
    healthy = {name: getattr(jax.lax, name) for name in names if hasattr(jax.lax, name)}
    places = [(room, name) for room in book for name in healthy if getattr(room, name, None) is healthy[name]]
    for room, name in places:
        setattr(room, name, harmed(name, healthy[name]))
    try:
        yield
    finally:
        for room, name in places:
            setattr(room, name, healthy[name])


def in_collectives(operation: str, names: tuple[str, ...], make_harm: Callable[[Form], Harm | None]) -> Operator:
    """An operator on pages by hand whose budget has this operation: it harms these functions while they are traced."""

    def members(form: Form) -> Members | None:
        if is_annotated(form) or not moved(form, operation) or make_harm(form) is None:
            return None
        compiling = "per_device" if is_pmap(form) else "compile"

        def compiled(self: Any, function: Any, *arguments: Any, **options: Any) -> Any:
            @wraps(function)  # what is not harmed is the program that the cache knows
            def traced(*given: Any) -> Any:
                fresh = make_harm(form)
                assert fresh
                with replaced(names, fresh):
                    return function(*given)

            return method(form, compiling)(self, traced, *arguments, **options)

        return {compiling: compiled}

    return members


def moved(form: Form, operation: str) -> list[Line]:
    """What a page's step moves by this operation, but for metrics."""
    return [line for line in form.page.communication.step if line.operation == operation and line.payload != "metrics"]


def forget_first(_: Form) -> Harm:
    """The first array of a program is not reduced."""
    seen: list[str] = []

    def harm(call: Call, x: Any) -> Any:
        seen.append(call.name)
        return x if len(seen) == 1 else call(x)

    return harm


def average_again(call: Call, x: Any) -> Any:
    """Reduced, and then what is equal already is averaged: the same numbers, and twice the bytes."""
    again = call(optimization_barrier(call(x)))
    return again / axis_size(call.axes) if call.name == "psum" else again


def over_another_axis(form: Form) -> Harm | None:
    """Over the first mesh axis that the call does not name; none where every reduction is over all axes."""
    reduced = [set(line.over) for line in moved(form, "all-reduce")]
    if all(axes >= set(form.mesh_axes) for axes in reduced):
        return None

    def harm(call: Call, x: Any) -> Any:
        named = {call.axes} if isinstance(call.axes, str) else set(call.axes)
        others = [axis for axis in form.mesh_axes if axis not in named]
        return replace(call, axes=others[0])(x) if others else call(x)

    return harm


def permuted(rearrange: Callable[[int, int, int], tuple[int, int]]) -> Harm:
    """Each pair of sender and receiver, and how many devices there are, to another pair."""

    def harm(call: Call, x: Any) -> Any:
        pairs = [rearrange(sender, receiver, axis_size(call.axes)) for sender, receiver in call.rest[0]]
        return replace(call, rest=(pairs,))(x)

    return harm


def reversed_ring(form: Form) -> Harm | None:
    """Each array goes back to whom the next came from. A ring of two is its own reverse; a chain of stages is none."""
    rings = [prod(form.mesh_axes[axis] for axis in line.over) for line in moved(form, "collective-permute")]
    return permuted(lambda i, j, n: (j, i)) if max(rings, default=0) > 2 or isinstance(form, Pipelined) else None


def rolled_shards(call: Call, x: Any) -> Any:
    """Each shard in its neighbour's place."""
    dimension = call.options.get("axis", call.options.get("scatter_dimension"))
    if call.name == "psum_scatter":
        return call(jnp.roll(x, x.shape[dimension] // axis_size(call.axes), dimension))
    return jnp.roll(call(x), x.shape[dimension], dimension)


def gather_twice(call: Call, x: Any) -> Any:
    """The mean of two gathers that no compiler takes for one."""
    return (call(x) - call(-x)) / 2


def narrow(call: Call, x: Any) -> Any:
    """In half the bytes, and an eighth of the digits."""
    return call(x.astype(jnp.bfloat16)).astype(x.dtype)


def scattered(harm: Harm) -> Callable[[Form], Harm]:
    """The same harm where gradients or activations are scattered: by a call, or by the transpose of a gather."""

    def harm_gather(gather: Call, x: Any) -> Any:
        dimension = {"scatter_dimension": gather.options["axis"], "tiled": True}
        scatter = Call("psum_scatter", psum_scatter, gather.axes, (), dimension)
        gathered = jax.custom_vjp(gather)
        gathered.defvjp(lambda x: (gather(x), None), lambda _, gradient: (harm(scatter, gradient),))
        return gathered(x)

    return lambda _: lambda call, x: harm(call, x) if call.name == "psum_scatter" else harm_gather(call, x)


def always(harm: Harm) -> Callable[[Form], Harm]:
    """The same harm on every form."""
    return lambda _: harm


def planted(name: str, operation: str, names: tuple[str, ...], make_harm: Callable[[Form], Harm | None]) -> None:
    """Register an operator on collectives."""
    members = in_collectives(operation, names, make_harm)
    members.__name__ = name
    operator(members)


planted("reduction_left_out", "all-reduce", ALL_REDUCES, always(lambda call, x: x))
planted("reduction_left_out_on_one_leaf", "all-reduce", ALL_REDUCES, forget_first)
planted("reduction_doubled", "all-reduce", ALL_REDUCES, always(average_again))
planted("reduction_in_bf16", "all-reduce", ALL_REDUCES, always(narrow))
planted("reduction_over_another_axis", "all-reduce", ALL_REDUCES, over_another_axis)
SCATTERS = ("psum_scatter", "all_gather")
planted("scatter_in_bf16", "reduce-scatter", SCATTERS, scattered(narrow))
planted("scatter_off_by_one", "reduce-scatter", SCATTERS, scattered(rolled_shards))
planted("gather_off_by_one", "all-gather", GATHERS, always(rolled_shards))
planted("gather_repeated", "all-gather", GATHERS, always(gather_twice))
planted("permutation_reversed", "collective-permute", ("ppermute",), reversed_ring)
planted(
    "permutation_off_by_one", "collective-permute", ("ppermute",), always(permuted(lambda i, j, n: (i, (j + 1) % n)))
)
planted(
    "exchange_with_the_neighbour",
    "all-to-all",
    ("all_to_all",),
    always(lambda call, x: call(jnp.roll(x, 1, call.options["split_axis"]))),
)
