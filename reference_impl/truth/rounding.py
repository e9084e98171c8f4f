"""Numbers in float64 that know how much float32 rounding explains of them.

A `Rounded` is a float64 value and the variance of the error that the same computation makes in float32. Every
operation propagates the variances of its operands in first order, as independent, and adds its own rounding:

*One rounding.* Rounding to nearest errs by at most half a unit in the last place. An error that is uniform in that
interval has variance ulp²/12, which is at most (u·x)²/3 with u = 2⁻²⁴ (the worst mantissa; the mean over mantissas is
half of it). Higham and Mary, "A new approach to probabilistic rounding error analysis" (SISC 41, 2019): errors that
are independent and of mean zero add in quadrature, so a sum of n terms errs by √n·u rather than n·u.

*A sum.* A sequential sum of t₁…tₙ rounds each partial sum s₂…sₙ. Over a random order of the terms, with T = Σt and
Q = Σt², a partial sum of m terms has E[s²] = m(n−m)/(n(n−1))·Q + m(m−1)/(n(n−1))·T², and so the rounding of all of them
has the variance (u²/3)·((n+1)/6 − 1/n)·Q + (u²/3)·(n+1)/3·T². Pairwise, blocked and vectorised sums, and sums split
over devices, are other trees over the same terms. The sequential one has the largest partial sums, so this is an upper
estimate for every one of them (only where terms cancel, T² < 0.3·Q, is some tree worse, by a seventh at most).

*Underflow.* A backend may flush results below 2⁻¹²⁶ to zero, so every inexact result also has that absolute error.

Nothing here knows of an order, a block size or a device count: the bound is a property of the mathematics.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import erfc, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

UNIT = 2.0**-24
"""The unit roundoff u of float32."""

ROUNDING = UNIT**2 / 3
"""Variance of the relative error of one correctly rounded operation."""

ELEMENTARY = (2 * UNIT) ** 2
"""Variance of the relative error of exp and log, which no backend rounds correctly: one unit in the last place."""

UNDERFLOW = (2.0**-126) ** 2
"""Variance of the absolute error of a result that may be flushed to zero."""


@dataclass(frozen=True, eq=False, slots=True)
class Rounded:
    """A float64 ``value`` and the ``variance`` that float32 rounding explains of it: arrays of one shape."""

    value: Array
    variance: Array

    def __matmul__(self, other: Rounded) -> Rounded:
        """``(…, n) @ (n, …)``: n products, each rounded, and their sum in any order."""
        left, right = self.value**2, other.value**2
        value, squares = self.value @ other.value, left @ right
        inherited = self.variance @ right + left @ other.variance
        products = ROUNDING * squares + UNDERFLOW * (squares > 0)
        return Rounded(value, inherited + products + accumulation(value, squares, self.value.shape[-1]))

    def __add__(self, other: Rounded | float) -> Rounded:
        right = constant(other)
        value = self.value + right.value
        return Rounded(value, self.variance + right.variance + rounding(value))

    def __sub__(self, other: Rounded | float) -> Rounded:
        return self + (-constant(other))

    def __neg__(self) -> Rounded:
        return replace(self, value=-self.value)

    def __mul__(self, other: Rounded | float) -> Rounded:
        right = constant(other)
        value = self.value * right.value
        inherited = self.variance * right.value**2 + self.value**2 * right.variance + self.variance * right.variance
        return Rounded(value, inherited + rounding(value))

    def __truediv__(self, other: Rounded | float) -> Rounded:
        right = constant(other)
        value = self.value / right.value
        return Rounded(value, (self.variance + value**2 * right.variance) / right.value**2 + rounding(value))

    @property
    def T(self) -> Rounded:  # noqa: N802 (NumPy's own name)
        """The transpose: it moves values and rounds nothing."""
        return replace(self, value=self.value.T, variance=self.variance.T)

    def sum(self, axis: int | None = None) -> Rounded:
        """The sum over one axis, or over all, in any order."""
        value, squares = np.asarray(self.value.sum(axis)), np.asarray((self.value**2).sum(axis))
        terms = self.value.size if axis is None else self.value.shape[axis]
        return Rounded(value, self.variance.sum(axis) + accumulation(value, squares, terms))

    def square(self) -> Rounded:
        """``x²``. Both factors share one error e: Var = 4x²·E[e²] + E[e⁴], and E[e⁴] = 3·E[e²]² counts where x is 0."""
        value = self.value**2
        return Rounded(value, 4 * value * self.variance + 3 * self.variance**2 + rounding(value))

    def sqrt(self) -> Rounded:
        """``√x``. The slope 1/(2√x) is unbounded at 0, where |√(x+e) − √x| ≤ √|e| bounds the error instead."""
        value = np.sqrt(self.value)
        first_order = divide_or_infinite(self.variance, 4 * self.value)
        return Rounded(value, np.minimum(first_order, np.sqrt(self.variance)) + rounding(value))


def exact(value: Any) -> Rounded:
    """What float32 holds exactly, such as a float32 input: no variance."""
    array = np.asarray(value, np.float64)
    return Rounded(array, np.zeros_like(array))


def constant(value: Rounded | float) -> Rounded:
    """A constant as float32 holds it: 0.9 is off by a known 2.6e-8 of its value, 0.5 is exact."""
    if isinstance(value, Rounded):
        return value
    return Rounded(np.asarray(value, np.float64), np.asarray((float(np.float32(value)) - value) ** 2))


def relu(z: Rounded) -> Rounded:
    """``max(z, 0)``. An error of z shows as often as z is positive."""
    return replace(z, value=np.maximum(z.value, 0), variance=z.variance * chance_positive(z))


def gate(gradient: Rounded, z: Rounded, lean: float = 0) -> Rounded:
    """The gradient of `relu`: what arrives, where ``z > 0``.

    Where the error of z may carry it across 0, the whole arriving gradient g appears or vanishes: with the chance p of
    that, the error has the second moment p·g², up to g²/2 at z = 0. ``lean`` moves the value itself by that many
    deviations √p·g, to see where such an error goes.
    """
    is_open, chance_open = z.value > 0, chance_positive(z)
    chance_of_flip = np.where(is_open, 1 - chance_open, chance_open)
    flips = chance_of_flip * gradient.value**2
    openness = is_open + lean * np.where(is_open, -1, 1) * np.sqrt(chance_of_flip) if lean else is_open
    return replace(gradient, value=gradient.value * openness, variance=gradient.variance * chance_open + flips)


def contest(z: Rounded) -> tuple[Array, Array]:
    """One at the maximum of the last axis, 0 elsewhere; and each other entry's chance to be computed larger than it."""
    top = z.value.argmax(-1)[..., None]
    at_top = np.arange(z.value.shape[-1]) == top
    value, variance = (np.take_along_axis(part, top, -1) for part in (z.value, z.variance))
    lead = np.where(at_top, -np.inf, z.value - value)
    return at_top.astype(np.float64), chance_positive(Rounded(lead, z.variance + variance))


def softmax(z: Rounded) -> Rounded:
    """``exp(z − max z) / Σ exp(z − max z)`` over the last axis.

    First order through the exact Jacobian dpᵢ = pᵢ·(dzᵢ − Σⱼ pⱼ·dzⱼ): numerator and denominator share their errors.
    """
    _, exponential, total, relative = shifted_exponential(z)
    value = exponential / total
    own = relative + relative_variance_of_total(exponential, total, relative) + ROUNDING
    return Rounded(value, value**2 * (centred_variance(z, value) + own) + UNDERFLOW)


def log_softmax(z: Rounded) -> Rounded:
    """``z − log Σ exp z`` over the last axis, shifted by the maximum or not; first order through dzᵢ − Σⱼ pⱼ·dzⱼ."""
    shifted, exponential, total, relative = shifted_exponential(z)
    logarithm = np.log(total)
    value, normaliser = shifted - logarithm, z.value - shifted + logarithm
    own = (
        ROUNDING * (shifted**2 + normaliser**2 + value**2)
        + ELEMENTARY * logarithm**2
        + relative_variance_of_total(exponential, total, relative)
    )
    return Rounded(value, centred_variance(z, exponential / total) + own)


def rounding(value: Array) -> Array:
    """Variance of one rounding of ``value``; a result that is exactly zero is exact."""
    return np.asarray(ROUNDING * value**2 + UNDERFLOW * (value != 0))


def accumulation(total: Array, squares: Array, terms: int | NDArray[np.int64]) -> Array:
    """Variance of rounding the partial sums of terms with sum T and sum of squares Q (see the module's docstring)."""
    return np.asarray(ROUNDING * (((terms + 1) / 6 - 1 / terms) * squares + (terms + 1) / 3 * total**2))


def chance_positive(z: Rounded) -> Array:
    """The chance that the computed z is positive, for a normally distributed error; exact z are certain."""
    chance = (z.value > 0).astype(np.float64)
    deviation = np.sqrt(z.variance)
    uncertain = np.abs(z.value) < 8 * deviation
    chance[uncertain] = [erfc(-t / sqrt(2)) / 2 for t in z.value[uncertain] / deviation[uncertain]]
    return chance


def shifted_exponential(z: Rounded) -> tuple[Array, Array, Array, Array]:
    """``z − max z``, its exponential, their total, and the relative variance that computing each exponential adds."""
    shifted = z.value - z.value.max(-1, keepdims=True)
    exponential = np.exp(shifted)
    return shifted, exponential, exponential.sum(-1, keepdims=True), ROUNDING * shifted**2 + ELEMENTARY


def relative_variance_of_total(exponential: Array, total: Array, relative: Array) -> Array:
    """Relative variance of the softmax denominator: from its terms, and from their summation."""
    squares = (exponential**2).sum(-1, keepdims=True)
    inherited = (exponential**2 * relative).sum(-1, keepdims=True)
    return np.asarray((inherited + accumulation(total, squares, exponential.shape[-1])) / total**2)


def centred_variance(z: Rounded, p: Array) -> Array:
    """Variance of dzᵢ − Σⱼ pⱼ·dzⱼ for independent dz: (1 − 2pᵢ)·Var zᵢ + Σⱼ pⱼ²·Var zⱼ."""
    return np.asarray(z.variance * (1 - 2 * p) + (p**2 * z.variance).sum(-1, keepdims=True))


def divide_or_infinite(numerator: Array, denominator: Array) -> Array:
    """``numerator / denominator``, 0 where the numerator is 0 and infinite where only the denominator is."""
    quotient = np.where(numerator > 0, np.inf, 0.0)
    np.divide(numerator, denominator, out=quotient, where=denominator > 0)
    return quotient
