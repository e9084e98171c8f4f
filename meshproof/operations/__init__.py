"""Operations and stacked layers as data, seen under many layouts: the words that a table of them is written in.

A table is a module with ``operations()``, ``transforms()``, ``programs()`` or ``stacked_layers()``, or several.
Importing it must start no JAX backend.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Operand", "Operation"]

Draw = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]
"""Makes the values of an operand of that shape."""


def whole_numbers(draws: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Whole numbers from −3 to 3: sums of their products are exact in float32, in whatever order."""
    return draws.integers(-3, 4, size=shape)


def normal(draws: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Normal values."""
    return draws.normal(size=shape)


@dataclass(frozen=True)
class Operand:
    """An array that an operation takes: shape, dtype, and what draws its values.

    With several ``draws`` the compiled program runs once for each: values inside and outside an array's bounds, say.
    """

    shape: tuple[int, ...]
    dtype: str = "float32"
    draws: tuple[Draw, ...] = (whole_numbers,)

    @property
    def is_float(self) -> bool:
        """Whether the operation can be differentiated by it."""
        return "float" in self.dtype


@dataclass(frozen=True)
class Operation:
    """An operation on operands, and who judges it.

    ``judge`` is the same function in NumPy, on float64 for operands of floats; without one the operation on one device
    is. Where ``exact``, every result is a whole number or a copy and must be equal; else within the bound that rounding
    of ``chain`` numbers explains, the longest sum of one element. ``differentiable`` operations are judged by their
    gradients too. ``donates`` names the operand whose buffer the program may take, ``axis_types`` the kinds of axes
    that it is run on. ``most`` is how many layouts of a covering are run, of what need not be tried under all.
    """

    name: str
    function: Callable[..., Any]
    operands: tuple[Operand, ...]
    judge: Callable[..., Any] | None = None
    exact: bool = True
    chain: int = 64
    differentiable: bool = True
    donates: int | None = None
    axis_types: tuple[str, ...] = ("Auto", "Explicit")
    most: int | None = None

    @property
    def differentiated(self) -> tuple[int, ...]:
        """The operands that it has gradients for."""
        found = (place for place, operand in enumerate(self.operands) if operand.is_float)
        return tuple(found) if self.differentiable else ()

    @property
    def id(self) -> str:
        """As ``gather@operations``."""
        return f"{self.name}@operations"
