"""Shapes as HLO spells them: `f32[8,64]{1,0:T(8,128)S(1)}`, tuples of them, and the bytes they hold."""

import re
from dataclasses import dataclass
from math import prod

from meshproof.hlo.errors import HloError, unknown
from meshproof.hlo.lexing import COMMENT

# In bits: XLA packs sub-byte integers and floats, so a collective of s4 moves half a byte per element.
_FLOAT8 = ("f8e3m4", "f8e4m3", "f8e4m3fn", "f8e4m3fnuz", "f8e4m3b11fnuz", "f8e5m2", "f8e5m2fnuz", "f8e8m0fnu")
_FLOATS = {"f4e2m1fn": 4, "bf16": 16, "f16": 16, "f32": 32, "f64": 64, "c64": 64, "c128": 128}
_INTEGERS = {f"{sign}{bits}": bits for sign in "su" for bits in (1, 2, 4, 8, 16, 32, 64)}
BITS = {"pred": 8, "token": 0, "opaque": 0} | _FLOATS | _INTEGERS | dict.fromkeys(_FLOAT8, 8)

_ARRAY = re.compile(r"([a-z][a-z0-9]*)\[([^\]]*)\]")


@dataclass(frozen=True)
class Shape:
    """One array: its element type and its dimensions."""

    dtype: str
    dimensions: tuple[int, ...]

    @property
    def elements(self) -> int:
        """Number of elements."""
        return prod(self.dimensions)

    @property
    def bytes(self) -> int:
        """Bytes on one device, without padding; sub-byte elements are packed."""
        return (self.elements * BITS[self.dtype] + 7) // 8


def read_shapes(text: str, line: int, column: int, context: str) -> tuple[Shape, ...]:
    """The arrays of a type, in order, tuples flattened. Layouts, tiles and memory spaces are parsed past.

    Raises `HloError` for an element type whose width is unknown and for dimensions that are not numbers.
    """
    bare = COMMENT.sub("", text)
    shapes = tuple(_read_array(match, line, column, context) for match in _ARRAY.finditer(bare))
    if not shapes and bare.strip() != "()":
        raise HloError(unknown(f"expected a shape such as f32[8,64]{{1,0}}, got {bare!r}"), line, column, context)
    return shapes


def _read_array(match: re.Match[str], line: int, column: int, context: str) -> Shape:
    dtype, dimensions = match.groups()
    if dtype not in BITS:
        raise HloError(
            unknown(f"unknown element type {dtype!r}: its width in bytes is not known"), line, column, context
        )
    try:
        # A bounded dynamic dimension is spelled <=8: its bound is what the buffer holds and the collective moves.
        sizes = tuple(int(size.removeprefix("<=")) for size in dimensions.split(",")) if dimensions else ()
    except ValueError:
        problem = f"expected dimensions such as [8,64], got [{dimensions}]"
        raise HloError(unknown(problem), line, column, context) from None
    return Shape(dtype, sizes)
