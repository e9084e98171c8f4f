"""Operations of transformers, and their gradients by hand, over numbers that know their float32 rounding.

A composite operation propagates the variances of its operands through its exact Jacobian, for what it makes of one
operand many times errs together; the rounding of its own steps is that of the same steps on exact operands.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .rounding import ELEMENTARY, UNDERFLOW, Array, Rounded, accumulation, centred_variance, exact, softmax

HIDDEN = -1e9
"""The score of a key that a query must not see: nothing is left of its exponential."""

LINEAR, CUBIC = float(np.sqrt(2 / np.pi)), 0.044715
"""The constants of the GELU by tanh (Hendrycks and Gimpel 2016)."""


def rearrange(x: Rounded, move: Callable[[Array], Array]) -> Rounded:
    """What only moves or repeats values, and so rounds nothing: a reshape, a transpose, an index."""
    return Rounded(move(x.value), move(x.variance))


def mean(x: Rounded) -> Rounded:
    """The mean over the last axis, which is kept."""
    return rearrange(x.sum(-1), lambda a: a[..., None]) * (1 / x.value.shape[-1])


def look_up(table_VxD: Rounded, rows: np.ndarray) -> Rounded:
    """Rows of a table by number."""
    return rearrange(table_VxD, lambda a: np.asarray(a[rows]))


def scatter_add(g_NxD: Rounded, rows_N: np.ndarray, count: int) -> Rounded:
    """The gradient of `look_up`: each row's sum, in any order, over where it was looked up."""

    def add(terms_NxD: Array) -> Array:
        total_VxD = np.zeros((count, terms_NxD.shape[-1]))
        np.add.at(total_VxD, rows_N, terms_NxD)
        return total_VxD

    value_VxD, terms_Vx1 = add(g_NxD.value), np.bincount(rows_N, minlength=count)[:, None]
    rounded_VxD = accumulation(value_VxD, add(g_NxD.value**2), np.maximum(terms_Vx1, 1))
    return Rounded(value_VxD, add(g_NxD.variance) + np.where(terms_Vx1 > 1, rounded_VxD, 0))


def normalise(x_NxD: Rounded, epsilon: float) -> tuple[Rounded, Rounded]:
    """``x̂ = (x − μ)/σ`` over D with ``σ² = mean (x − μ)² + ε``, and ``1/σ`` (N, 1).

    First order through ``dx̂ᵢ = (dxᵢ − Σⱼ (1 + x̂ᵢx̂ⱼ)·dxⱼ/D)/σ`` and ``d(1/σ) = −Σⱼ x̂ⱼ·dxⱼ/(D·σ²)``.
    """
    x, v, D = exact(x_NxD.value), x_NxD.variance, x_NxD.value.shape[-1]
    centred = x - mean(x)
    deviation = (mean(centred.square()) + epsilon).sqrt()
    inverse = exact(1) / deviation
    inverse = Rounded(inverse.value, inverse.variance + ELEMENTARY * inverse.value**2)
    own = centred * inverse
    slope = (own.value**2 * v).sum(-1, keepdims=True) / D**2
    return (
        Rounded(own.value, own.variance + inverse.value**2 * projected_variance(v, own.value)),
        Rounded(inverse.value, inverse.variance + inverse.value**4 * slope),
    )


def normalise_backward(g_NxD: Rounded, xhat_NxD: Rounded, inverse_Nx1: Rounded) -> Rounded:
    """The gradient by x, from that by x̂: ``(g − mean g − x̂·mean(g·x̂))/σ``, the transpose of the same Jacobian."""
    g = exact(g_NxD.value)
    own = (g - mean(g) - xhat_NxD * mean(g * xhat_NxD)) * inverse_Nx1
    inherited = inverse_Nx1.value**2 * projected_variance(g_NxD.variance, xhat_NxD.value)
    return Rounded(own.value, own.variance + inherited)


def projected_variance(v_NxD: Array, xhat_NxD: Array) -> Array:
    """Variance of ``dxᵢ − Σⱼ (1 + x̂ᵢx̂ⱼ)·dxⱼ/D`` for independent dx."""
    D, (zeroth, first, second) = v_NxD.shape[-1], [(xhat_NxD**k * v_NxD).sum(-1, keepdims=True) for k in range(3)]
    own = v_NxD * (1 - 2 * (1 + xhat_NxD**2) / D)
    return np.asarray(own + (zeroth + 2 * xhat_NxD * first + xhat_NxD**2 * second) / D**2)


def gelu(z: Rounded) -> Rounded:
    """``z·(1 + tanh u)/2`` with ``u = √(2/π)·(z + 0.044715·z³)``."""
    own = exact(z.value) * gate(exact(z.value)) * 0.5
    return Rounded(own.value, own.variance + slopes(z.value)[0] ** 2 * z.variance)


def gelu_backward(g: Rounded, z: Rounded) -> Rounded:
    """The gradient by z: what arrives, times ``(1 + tanh u + z·(1 − tanh² u)·u′)/2``."""
    exact_z = exact(z.value)
    t = tanh(inner(exact_z))
    steepness = (exact_z.square() * (3 * CUBIC) + 1) * LINEAR
    own = (gate(exact_z) + exact_z * (exact(1) - t.square()) * steepness) * 0.5
    return g * Rounded(own.value, own.variance + slopes(z.value)[1] ** 2 * z.variance)


def gate(z: Rounded) -> Rounded:
    """``1 + tanh u``."""
    return tanh(inner(z)) + 1


def inner(z: Rounded) -> Rounded:
    """``u = √(2/π)·(z + 0.044715·z³)``."""
    return (z + z * z.square() * CUBIC) * LINEAR


def tanh(u: Rounded) -> Rounded:
    """``tanh u``, as elementary as exp."""
    value = np.tanh(u.value)
    return Rounded(value, (1 - value**2) ** 2 * u.variance + ELEMENTARY * value**2 + UNDERFLOW)


def slopes(z: Array) -> tuple[Array, Array]:
    """The first and second derivative of `gelu`."""
    t = np.tanh(LINEAR * (z + CUBIC * z**3))
    first, second = LINEAR * (1 + 3 * CUBIC * z**2), LINEAR * 6 * CUBIC * z
    dt = (1 - t**2) * first
    ddt = (1 - t**2) * second - 2 * t * dt * first
    return (1 + t + z * dt) / 2, dt + z * ddt / 2


def causal_softmax(z_TxS: Rounded) -> Rounded:
    """The softmax of each query's scores over the keys up to its own position; the later ones have probability 0."""
    seen = np.tri(*z_TxS.value.shape[-2:], dtype=np.bool_)
    return softmax(Rounded(np.where(seen, z_TxS.value, HIDDEN), np.where(seen, z_TxS.variance, 0)))


def softmax_backward(g: Rounded, p: Rounded) -> Rounded:
    """The gradient by the scores: ``p·(g − Σ p·g)``; g errs in both terms together."""
    own = exact(g.value)
    weighted = own * p
    centred = own - rearrange(weighted.sum(-1), lambda a: a[..., None])
    return p * Rounded(centred.value, centred.variance + centred_variance(g, p.value))
