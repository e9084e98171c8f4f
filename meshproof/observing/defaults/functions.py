"""What functions of JAX return, found by calling or by tracing them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

from meshproof.observing.defaults.probe import first_cpu, probe

VECTOR = jax.ShapeDtypeStruct((3,), jnp.int32)
MATRIX = jax.ShapeDtypeStruct((2, 2), jnp.float32)
ROW = jax.ShapeDtypeStruct((1, 3), jnp.float32)
CUBE = jax.ShapeDtypeStruct((3, 4, 5), jnp.float32)


def first_equation(function: Callable[..., Any], *arguments: Any) -> Any:
    """The first equation of what a function is traced to; ``None`` where it has none."""
    return next(iter(jax.make_jaxpr(function)(*arguments).eqns), None)


@probe("jax", (">=0.7.0", "jit"), ("<0.7.0", "pjit"))
def jit_primitive() -> str:
    """primitive of ``jax.jit`` in a jaxpr"""
    return first_equation(jax.jit(lambda x: x), 1.0).primitive.name


@probe("jax", (">=0.9.2", ["TypedNdArray", True]), (">=0.8.0", ["TypedNdArray", False]),
       (">=0.7.2", ["LiteralArray", False]), ("<0.7.2", ["float32", False]))  # fmt: skip
def jaxpr_constants() -> list[Any]:
    """type of a constant in a jaxpr, and whether that is a NumPy array"""
    literal = first_equation(lambda x: x * np.float32(2), np.float32(1)).invars[1].val
    return [type(literal).__name__, isinstance(literal, np.ndarray)]


@probe("jax", (">=0.7.2", "int32"), ("<0.7.2", "float32"))
def view_without_dtype() -> str:
    """type of ``x.view(None)`` where x is int32"""
    return str(jax.eval_shape(lambda x: x.view(None), VECTOR).dtype)


@probe("jax", (">=0.8.0", "nan"), ("<0.8.0", "-0.0"))
def covariance_of_nothing() -> str:
    """``jax.numpy.cov`` of an empty array"""
    return str(float(jnp.cov(jnp.zeros(0))))


@probe("jax", (">=0.8.0", [3, 3]), ("<0.8.0", []))
def covariance_of_one_row() -> list[int]:
    """shape of ``jax.numpy.cov`` of 1 × 3 values whose rows are the observations"""
    return list(jax.eval_shape(partial(jnp.cov, rowvar=False), ROW).shape)


@probe("jax", (">=0.8.0", "EigResult"), ("<0.8.0", "tuple"))
def eigenvalues() -> str:
    """type that ``jax.numpy.linalg.eig`` returns"""
    return type(jax.eval_shape(jnp.linalg.eig, MATRIX)).__name__


@probe("jax", (">=0.8.0", "float32"), ("<0.8.0", "float64"))
def primals() -> str:
    """type of the value that ``jax.vjp`` returns for a float64 of NumPy, without x64"""
    return str(jax.vjp(lambda x: x, np.float64(0.1))[0].dtype)


@probe("jax", (">=0.8.0", [1, 1]), ("<0.8.0", [0, 2]))
def trimmed_zeros() -> list[int]:
    """shape of ``jax.numpy.trim_zeros`` of ``[[0, 0], [0, 1]]``"""
    return list(jnp.trim_zeros(np.diag([0.0, 1.0])).shape)


@probe("jax", (">=0.8.2", False), ("<0.8.2", True))
def tracers_inherit_from_arrays() -> bool:
    """whether ``jax.core.Tracer`` inherits from ``jax.Array``"""
    return issubclass(jax.core.Tracer, jax.Array)


@probe("jax", (">=0.9.1", False), ("<0.9.1", True))
def references_are_arrays() -> bool:
    """whether a traced reference is an instance of ``jax.Array``"""
    seen = []
    jax.make_jaxpr(lambda x: seen.append(isinstance(jax.new_ref(x), jax.Array)))(1.0)
    return seen[0]


@probe("jax", (">=0.10.0", "the device"), ("<0.10.0", "the host"))
def arange_with_step() -> str:
    """where ``jax.numpy.arange`` with a step computes its values"""
    return "the device" if first_equation(lambda: jnp.arange(0, 10, 2)) else "the host"


@probe("jax", (">=0.10.0", "float32"), ("<0.10.0", "int32"))
def ranks() -> str:
    """type of ``jax.scipy.stats.rankdata`` by the method ``min``"""
    return str(jax.eval_shape(partial(jax.scipy.stats.rankdata, method="min"), VECTOR).dtype)


@probe("jax", (">=0.10.0", [3, 2, 2]), ("<0.10.0", [2, 2, 5]))
def cosine_transform_axes() -> list[int]:
    """shape of ``jax.scipy.fft.dctn`` of 3 × 4 × 5 values where two sizes and no axes are given"""
    return list(jax.eval_shape(partial(jax.scipy.fft.dctn, s=(2, 2)), CUBE).shape)


@probe("jax", (">=0.11.0", "empty"), ("<0.11.0", "broadcast_in_dim"))
def empty_arrays() -> str:
    """primitive of ``jax.numpy.empty``: ``broadcast_in_dim`` fills with zeros, ``empty`` with nothing"""
    return first_equation(lambda: jnp.empty(3)).primitive.name


@probe("jax", (">=0.6.0", "SimpleNamespace"))
def checkpoint_policies() -> str:
    """type of ``jax.checkpoint_policies``"""
    return type(jax.checkpoint_policies).__name__


@probe("jax", (">=0.10.2", "-inf"), ("<0.10.2", "nan"), kind="machine")
def largest_of_nan() -> str:
    """the largest of each row of 32 × 144 NaN on a CPU: YNNPACK, to which XLA hands what is as large, drops NaN"""
    return str(float(jnp.full((32, 144), jnp.nan, device=first_cpu()).max(axis=1)[0]))
