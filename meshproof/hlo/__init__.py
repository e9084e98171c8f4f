"""Compiled HLO text: a strict parser, and the census of the collectives a compiled program runs.

Pure Python, no dependencies. What cannot be accounted for is an `HloError` with line and column, never a zero.
"""

from meshproof.hlo.census import Collective, census, census_by_shape
from meshproof.hlo.errors import HloError
from meshproof.hlo.module import Computation, Instruction, Module
from meshproof.hlo.parser import parse
from meshproof.hlo.shapes import Shape
from meshproof.hlo.wire import best_wire_bytes, devices_of

__all__ = [
    "Collective",
    "Computation",
    "HloError",
    "Instruction",
    "Module",
    "Shape",
    "best_wire_bytes",
    "census",
    "census_by_shape",
    "devices_of",
    "parse",
]
