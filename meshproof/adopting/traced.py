"""What the jaxpr of a member tells, before a compiler has chosen how to compute it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import jax

from meshproof.adopting.trees import path_of
from meshproof.observing.meshes_in_traces import meshes_in_traces
from meshproof.observing.subject import Subject

DRAWS = ("random_bits", "random_gamma", "rng_bit_generator")
"""Primitives that draw; what only splits keys does not."""

HANDS_ON = {"convert_element_type", "copy", "pvary", "reshape", "reshard", "sharding_constraint", "transpose"}
"""Primitives whose result is their operand in another form."""

Paths = Mapping[Any, frozenset[str]]
"""Of variables, the parameters that they hold."""


def draws_bits(subject: Subject, member: str, state: Any) -> bool:
    """Whether it draws, as a dropout of rate 0 does not. What cannot be traced may."""
    try:
        with meshes_in_traces():
            traced = str(jax.make_jaxpr(getattr(subject.strategy, member))(state, subject.batches[0]))
    except Exception:
        return True
    return any(name in traced for name in DRAWS)


def looked_up(subject: Subject, state: Any) -> frozenset[str]:
    """The parameters that a step indexes and does not multiply: tables, of which a device may own a part of each row
    and bring what it finds to whom it belongs. None where it cannot be traced."""

    def traced(state: Any, batch: Any) -> Any:
        return subject.strategy.parameters(state), subject.strategy.train_step(state, batch)

    try:
        with meshes_in_traces():
            closed, shapes = jax.make_jaxpr(traced, return_shape=True)(state, subject.batches[0])
    except Exception:
        return frozenset()
    paths = [path_of(keys) for keys, _ in jax.tree_util.tree_flatten_with_path(shapes[0])[0]]
    holds = {var: frozenset({path}) for var, path in zip(closed.jaxpr.outvars, paths, strict=False)}
    found = [*_uses(closed.jaxpr, holds)]
    return frozenset(path for path, how in found if how == "gather") - {path for path, how in found if how != "gather"}


def _uses(jaxpr: Any, holds: Paths) -> Iterator[tuple[str, str]]:
    """Each parameter with the primitive of a lookup or of a product that takes it."""
    holds = dict(holds)

    def of(var: Any) -> frozenset[str]:
        return frozenset() if hasattr(var, "val") else holds.get(var, frozenset())

    for equation in jaxpr.eqns:
        name = equation.primitive.name
        if name in HANDS_ON:
            holds[equation.outvars[0]] = of(equation.invars[0])
        taken = equation.invars[:1] if name == "gather" else equation.invars if name == "dot_general" else []
        yield from ((path, name) for var in taken for path in of(var))
        for inner, given in _inner(equation):
            yield from _uses(inner, {var: of(outer) for var, outer in zip(inner.invars, given, strict=False)})


def _inner(equation: Any) -> Iterator[tuple[Any, Any]]:
    """The jaxprs of an equation, each with what it is given, as far as that is in its own order."""
    for value in equation.params.values():
        for each in value if isinstance(value, tuple | list) else (value,):
            inner: Any = getattr(each, "jaxpr", each)
            if hasattr(inner, "eqns"):
                yield inner, equation.invars[len(equation.invars) - len(inner.invars) :]
