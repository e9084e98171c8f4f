"""A program that JAX traced in float32, computed in float64.

Constants keep the value that they have in float32, random bits become the same numbers, and what is computed is no
longer rounded to float32. What a program calls is written out; its derivatives, if it has any, are in it already.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.extend.core import Jaxpr, JaxprEqn, Literal, Var

WIDER = {np.dtype("float32"): np.dtype("float64"), np.dtype("complex64"): np.dtype("complex128")}

CALLED = ("call_jaxpr", "jaxpr")
"""Where an equation has the program that it calls."""

CALLS = ("jit", "pjit", "closed_call", "core_call", "remat2", "checkpoint", "custom_jvp_call", "custom_vjp_call")

OF_DIGITS = ("bitcast_convert_type", "random_gamma")
"""What gives something else, and not the same more exactly, in a type of more digits: bits, and draws by rejection."""

DIGITS = 23
"""Of float32. To round to as many, or more, is no rounding of the program's own."""


class NarrowError(Exception):
    """A program has floats of fewer digits than float32, whose rounding is part of what it computes."""


def in_float64(program: Any, given: Sequence[Any]) -> list[Any]:
    """What a program (a jaxpr, open or closed) computes of arguments in float64.

    Raises `NarrowError`, and for equations of kinds that are not known here whatever JAX raises.
    """
    jaxpr: Jaxpr = getattr(program, "jaxpr", program)
    consts = [_widened(const) for const in getattr(program, "consts", ())]
    held: dict[Var, Any] = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *given), strict=True))

    def read(atom: Any) -> Any:
        return _widened(np.asarray(atom.val, _type_of(atom).dtype)) if isinstance(atom, Literal) else held[atom]

    for equation in jaxpr.eqns:
        with equation.ctx.manager:
            made = _computed(equation, [read(atom) for atom in equation.invars])
            values = [_of_type(value, _type_of(var)) for value, var in zip(made, equation.outvars, strict=True)]
        held |= dict(zip(equation.outvars, values, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _computed(equation: JaxprEqn, given: list[Any]) -> Sequence[Any]:
    """What one equation makes of these values."""
    name, params = equation.primitive.name, equation.params
    if name in CALLS:
        return in_float64(next(params[key] for key in CALLED if key in params), given)
    if name in OF_PROGRAMS:
        return OF_PROGRAMS[name](params, given)
    if name == "reduce_precision" and params["mantissa_bits"] >= DIGITS:
        return given
    if name in OF_DIGITS:
        given = [_narrowed(value, _type_of(var).dtype) for value, var in zip(given, equation.invars, strict=True)]
    else:
        params = {key: _wider(value) for key, value in params.items()}
    bound = equation.primitive.get_bind_params(params)
    functions, params = bound if isinstance(bound, tuple) else ((), bound)
    made = equation.primitive.bind(*functions, *given, **params)
    return made if equation.primitive.multiple_results else [made]


def _scan(params: Mapping[str, Any], given: Sequence[Any]) -> list[Any]:
    if "ft_in" in params:
        constants, carried = (len(list(part)) for part in params["ft_in"].unpack()[:2])
    else:
        constants, carried = params["num_consts"], params["num_carry"]

    def step(carry: Any, taken: Any) -> tuple[Any, Any]:
        made = in_float64(params["jaxpr"], [*given[:constants], *carry, *taken])
        return made[:carried], made[carried:]

    start, taken = list(given[constants : constants + carried]), list(given[constants + carried :])
    how = {name: params[name] for name in ("length", "reverse", "unroll")}
    carry, made = lax.scan(step, start, taken, **how)
    return [*carry, *made]


def _while(params: Mapping[str, Any], given: Sequence[Any]) -> list[Any]:
    of_condition = given[: params["cond_nconsts"]]
    of_body = given[len(of_condition) : len(of_condition) + params["body_nconsts"]]
    return lax.while_loop(
        lambda carry: in_float64(params["cond_jaxpr"], [*of_condition, *carry])[0],
        lambda carry: in_float64(params["body_jaxpr"], [*of_body, *carry]),
        list(given[len(of_condition) + len(of_body) :]),
    )


def _cond(params: Mapping[str, Any], given: Sequence[Any]) -> Any:
    branches = [lambda *taken, branch=branch: in_float64(branch, taken) for branch in params["branches"]]
    return lax.switch(given[0], branches, *given[1:])


def _shard_map(params: Mapping[str, Any], given: Sequence[Any]) -> Any:
    mapped: Any = jax.shard_map(
        lambda *taken: in_float64(params["jaxpr"], taken),
        mesh=params["mesh"],
        in_specs=params["in_specs"],
        out_specs=list(params["out_specs"]),
        axis_names=params["newly_manual_axes"],
        check_vma=params["check_vma"],
    )
    return mapped(*given)


OF_PROGRAMS = {"scan": _scan, "while": _while, "cond": _cond, "shard_map": _shard_map}


def _wider(value: Any) -> Any:
    """A parameter of an equation: a dtype, or the program of scalars that a scatter has."""
    if hasattr(value, "eqns"):
        kinds = [_type_of(var) for var in getattr(value, "jaxpr", value).invars]
        avals = [jax.ShapeDtypeStruct(kind.shape, WIDER.get(kind.dtype, kind.dtype)) for kind in kinds]
        traced: Any = jax.make_jaxpr(lambda *given: in_float64(value, given))(*avals)
        return traced if isinstance(traced, type(value)) else traced.jaxpr
    return WIDER.get(value, value) if isinstance(value, np.dtype) else value


def _type_of(atom: Any) -> Any:
    return atom.aval


def _of_type(value: Any, aval: Any) -> Any:
    """A value that was of this type, in float64 if it was in float32."""
    dtype = getattr(aval, "dtype", None)
    if dtype in WIDER:
        return lax.convert_element_type(value, WIDER[dtype])
    if dtype is not None and jax.numpy.issubdtype(dtype, jax.numpy.floating) and dtype != np.float64:
        raise NarrowError(f"a step computes in {dtype}")
    return value


def _narrowed(value: Any, dtype: Any) -> Any:
    """A value of float64 in the type that it was of."""
    return lax.convert_element_type(value, dtype) if dtype in WIDER else value


def _widened(value: Any) -> Any:
    dtype = getattr(value, "dtype", None)
    return np.asarray(value).astype(WIDER[dtype]) if dtype in WIDER else value
