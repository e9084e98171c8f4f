"""Numbers of float32 that are multiplied in TensorFloat-32.

    format          significand  unit roundoff u
    float32         24 bits      2⁻²⁴
    TensorFloat-32  11 bits      2⁻¹¹

A matrix product drops the last 13 bits of both operands. Rounded to nearest, that errs as in `rounding`, only that u is
2¹³ times larger; products are then exact in float32, and added up in it. Cut off, all operands get shorter together,
which no variance of independent errors tells: so the truth trains once more with operands that are cut off, and the
difference counts as a deviation too (NVIDIA, "A100 Tensor Core GPU Architecture", 2020, rounds; a tensor core that is
handed float32 as it is cuts off).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meshproof.contract import Leaves, ReferenceTrajectory, Step, Trajectory

from .rounding import ROUNDING, UNIT, Array, Rounded

COARSER = (2.0**-11 / UNIT) ** 2
"""The variance of a rounding to 11 bits, over that of one to float32."""


@dataclass(frozen=True, eq=False, slots=True)
class TensorFloat32(Rounded):
    """A `Rounded` whose matrix products round both operands, and those of what is made of it."""

    def __matmul__(self, other: Rounded) -> TensorFloat32:
        """Summed in float32."""
        x = Rounded.__matmul__(self, other)
        return TensorFloat32(x.value, x.variance + 2 * COARSER * ROUNDING * (self.value**2 @ other.value**2))

    def __add__(self, other: Rounded | float) -> TensorFloat32:
        """Rounded once, to float32."""
        x = Rounded.__add__(self, other)
        return TensorFloat32(x.value, x.variance)


@dataclass(frozen=True, eq=False, slots=True)
class CutOff(Rounded):
    """A `Rounded` whose matrix products cut both operands off, and those of what is made of it."""

    def __matmul__(self, other: Rounded) -> CutOff:
        """Summed in float32."""
        x = Rounded(cut_off(self.value), self.variance) @ Rounded(cut_off(other.value), other.variance)
        return CutOff(x.value, x.variance)

    def __add__(self, other: Rounded | float) -> CutOff:
        """Rounded once, to float32."""
        x = Rounded.__add__(self, other)
        return CutOff(x.value, x.variance)


def cut_off(value: Array) -> Array:
    """Float64 without all but 10 bits of mantissa."""
    mantissa, exponent = np.frexp(value)
    return np.ldexp(np.trunc(mantissa * 2**11), exponent - 11)


def widened(rounded: ReferenceTrajectory, cut: Trajectory) -> ReferenceTrajectory:
    """The deviations with what the same training, operands cut off, differs by."""

    def leaves(deviation: Leaves, value: Leaves, other: Leaves) -> Leaves:
        return {path: np.hypot(deviation[path], value[path] - other[path]) for path in value}

    def step(deviation: Step, value: Step, other: Step) -> Step:
        return Step(
            float(np.hypot(deviation.loss, value.loss - other.loss)),
            leaves(deviation.parameters, value.parameters, other.parameters),
            leaves(deviation.optimizer_state, value.optimizer_state, other.optimizer_state),
        )

    value, deviation = rounded.value, rounded.rounding
    steps = zip(deviation.steps, value.steps, cut.steps, strict=True)
    gradients = leaves(deviation.gradients, value.gradients, cut.gradients)
    return ReferenceTrajectory(value, Trajectory(gradients, tuple(step(*each) for each in steps)))
