"""The transforms that training uses, and what each means."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from meshproof.operations.transforms import PLAIN, SHAPE, Function, Transform, TransformFamily
from meshproof.operations.transforms.bodies import BODIES, SAVED

Pair = tuple[Any, Any]


def plus(one: Pair, other: Pair) -> Pair:
    """Their sum."""
    return one[0] + other[0], one[1] + other[1]


def gradients(function: Function) -> Function:
    """The gradients of a weighted sum of the results."""

    def total(x: Any, w: Any) -> Any:
        weights = jnp.arange(1, SHAPE[1] + 1) % 3
        first, second = ((result * weights).sum((-2, -1)) for result in function(x, w))
        return (first + second).sum()

    return jax.grad(total, (0, 1))


def mapped(function: Function) -> Function:
    """The sum of the results for x and for −x, by ``vmap``."""

    def run(x: Any, w: Any) -> Pair:
        results = jax.vmap(function, (0, None))(jnp.stack([x, -x]), w)
        return results[0].sum(0), results[1].sum(0)

    return run


def scanned(function: Function) -> Function:
    """Two steps of ``lax.scan``."""
    return lambda x, w: lax.scan(lambda pair, _: (function(*pair), None), (x, w), None, length=2)[0]


def chosen(function: Function) -> Function:
    """A branch of ``lax.cond``, taken."""
    return lambda x, w: lax.cond(jnp.bool_(True), function, lambda x, w: (x, w), x, w)


def with_custom_vjp(function: Function) -> Function:
    """``custom_vjp``, whose rule is that of ``vjp``."""

    @jax.custom_vjp
    def run(x: Any, w: Any) -> Pair:
        return function(x, w)

    run.defvjp(lambda x, w: jax.vjp(function, x, w), lambda transposed, cotangents: transposed(cotangents))
    return run


def with_custom_jvp(function: Function) -> Function:
    """``custom_jvp``, whose rule is that of ``jvp``."""

    @jax.custom_jvp
    def run(x: Any, w: Any) -> Pair:
        return function(x, w)

    run.defjvp(lambda primals, tangents: jax.jvp(function, primals, tangents))
    return run


def linearized(function: Function) -> Function:
    """The results, and the linear map of ``linearize`` at the operands themselves."""

    def run(x: Any, w: Any) -> Pair:
        results, linear = jax.linearize(function, x, w)
        return plus(results, linear(x, w))

    return run


def transposed(function: Function) -> Function:
    """The transpose of the derivative, by ``linear_transpose``, of the results' signs."""

    def run(x: Any, w: Any) -> Pair:
        transpose = jax.linear_transpose(lambda *moved: jax.jvp(function, (x, w), moved)[1], x, w)
        return transpose(signs(function(x, w)))  # type: ignore[no-any-return]

    return run


def signs(results: Pair) -> Pair:
    """The signs of both."""
    return jnp.sign(results[0]), jnp.sign(results[1])


POLICIES = jax.checkpoint_policies

OUTER = (
    Transform("jit", jax.jit),
    Transform("grad", gradients, gradients, reverse=True),
    Transform("vmap", mapped, lambda f: lambda x, w: plus(f(x, w), f(-x, w))),
    Transform("scan", scanned, lambda f: lambda x, w: f(*f(x, w))),
    Transform("cond", chosen),
    Transform("remat", jax.checkpoint),
    Transform("custom_vjp", with_custom_vjp),
    Transform("custom_jvp", with_custom_jvp),
    Transform("linearize", linearized, lambda f: lambda x, w: plus(f(x, w), jax.jvp(f, (x, w), (x, w))[1])),
    Transform("linear_transpose", transposed, lambda f: lambda x, w: jax.vjp(f, x, w)[1](signs(f(x, w))), reverse=True),
)

INNER = (
    PLAIN,
    *OUTER,
    Transform("remat_dots", lambda f: jax.checkpoint(f, policy=POLICIES.dots_saveable)),
    Transform("remat_unbatched_dots", lambda f: jax.checkpoint(f, policy=POLICIES.dots_with_no_batch_dims_saveable)),
    Transform("remat_named", lambda f: jax.checkpoint(f, policy=POLICIES.save_only_these_names(SAVED))),
    Transform("remat_unnamed", lambda f: jax.checkpoint(f, policy=POLICIES.save_anything_except_these_names(SAVED))),
)
"""Policies of rematerialisation are tried within what differentiates, maps and repeats them."""

FAMILIES = tuple(TransformFamily(outer, INNER, BODIES) for outer in OUTER)
"""Each transform around each, and alone."""
