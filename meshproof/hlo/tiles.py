"""The bytes that a program's arguments take as it lays them out: on a TPU in tiles, which are padded.

    f32[512,16]{0,1:T(8,128)}        16 × 512 in tiles of 8 × 128: 16 × 512 elements
    f32[10]{0:T(128)}                128 elements
    bf16[64,64]{1,0:T(8,128)(2,1)}   64 × 128 elements; how a tile is packed inside adds nothing

The braces name the dimensions, minor to major; a tile covers as many of the most minor ones as it has sizes.
"""

import re
from dataclasses import dataclass
from math import prod

from meshproof.hlo.errors import HloError, unknown
from meshproof.hlo.parser import parse
from meshproof.hlo.shapes import BITS, Shape, read_shapes

_ARGUMENT = re.compile(r"[a-z][a-z0-9]*\[[^\]]*\](\{[^}]*\})?")
_LAYOUT = re.compile(r"\{([\d,]*)(?::((?:[A-Z]+\([^)]*\)(?:\([\d,]+\))*)*))?\}")
_TILE = re.compile(r"T\((\d+(?:,\d+)*)\)")


@dataclass(frozen=True)
class Argument:
    """An argument of a program on one device, and the bytes that it takes, padding included."""

    shape: Shape
    bytes: int


def arguments(text: str) -> tuple[Argument, ...]:
    """Every argument of the program that runs. Raises `HloError` for a layout that cannot be read."""
    taken = parse(text).attributes.get("entry_computation_layout", "").partition("->")[0]
    return tuple(
        Argument(shape, _padded(shape, match[1] or ""))
        for match in _ARGUMENT.finditer(taken)
        for shape in read_shapes(match[0], 1, 1, taken[:200])
    )


def _padded(shape: Shape, layout: str) -> int:
    """The bytes of a shape in its layout, as ``{1,0:T(8,128)}`` spells it."""
    if not layout:
        return shape.bytes
    read = _LAYOUT.fullmatch(layout)
    if read is None:
        raise HloError(unknown(f"expected a layout such as {{1,0:T(8,128)}}, got {layout}"), text=layout)
    tile = _TILE.search(read[2] or "")
    if tile is None:
        return shape.bytes
    order = [int(dimension) for dimension in read[1].split(",") if dimension]
    minor = [shape.dimensions[dimension] for dimension in order]
    sizes = [int(size) for size in reversed(tile[1].split(","))]
    minor += [1] * (len(sizes) - len(minor))
    sizes += [1] * (len(minor) - len(sizes))
    elements = prod(-(-dimension // size) * size for dimension, size in zip(minor, sizes, strict=True))
    return (elements * BITS[shape.dtype] + 7) // 8
