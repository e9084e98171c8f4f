"""Numbers that are kept in bfloat16 between operations.

    format     significand  unit roundoff u
    float32    24 bits      2⁻²⁴
    bfloat16    8 bits      2⁻⁸

Both have the same exponents, so nothing overflows or underflows sooner. A product of two bfloat16 numbers is exact in
float32, a dot product adds them up in float32, and what it gives is rounded once to bfloat16; as is every elementwise
result. One rounding has the variance (u·x)²/3 as in `rounding`, only that u is 2¹⁶ times larger.

A plain sum, such as a bias's gradient, is another matter: XLA:CPU rounds every partial sum of it to bfloat16. Its
variance is that of `rounding.accumulation` with this u, the sequential order again being the worst.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .rounding import UNIT, Rounded, accumulation, rounding

COARSER = (2.0**-8 / UNIT) ** 2
"""The variance of a rounding to bfloat16, over that of one to float32."""


@dataclass(frozen=True, eq=False, slots=True)
class Bfloat16(Rounded):
    """A `Rounded` that is kept in bfloat16, with the operations of a network: a loss takes what `widen` gives.

    It mixes with no other: what widens silently is a fault.
    """

    def __matmul__(self, other: Rounded) -> Bfloat16:
        """Summed in float32, rounded once."""
        return narrow(widen(self) @ widen(unmixed(other)))

    def __add__(self, other: Rounded | float) -> Bfloat16:
        """Rounded once."""
        return narrow(widen(self) + widen(unmixed(other)))

    def sum(self, axis: int | None = None) -> Bfloat16:
        """Every partial sum rounded."""
        value, squares = np.asarray(self.value.sum(axis)), np.asarray((self.value**2).sum(axis))
        terms = self.value.size if axis is None else self.value.shape[axis]
        return Bfloat16(value, self.variance.sum(axis) + COARSER * accumulation(value, squares, terms))


def narrow(x: Rounded) -> Bfloat16:
    """Float32, rounded to bfloat16."""
    return Bfloat16(x.value, x.variance + COARSER * rounding(x.value))


def widen(x: Rounded) -> Rounded:
    """Bfloat16, widened: exact."""
    return Rounded(x.value, x.variance)


def unmixed(other: Rounded | float) -> Bfloat16:
    """Raises ``TypeError`` for anything but bfloat16."""
    if not isinstance(other, Bfloat16):
        raise TypeError(f"bfloat16 mixed with {type(other).__name__}: cast one of them")
    return other
