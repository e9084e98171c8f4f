"""The arrays that a compiled program holds on a device.

Every result of an instruction is one, except inside a fusion: what a fusion computes on the way to its result is not
stored.
"""

from meshproof.hlo.errors import HloError
from meshproof.hlo.module import CALLERS, Instruction
from meshproof.hlo.offsets import is_of_position
from meshproof.hlo.parser import parse
from meshproof.hlo.reached import Reached
from meshproof.hlo.shapes import BITS, Shape

HANDS_ON = frozenset({*CALLERS, "tuple", "get-tuple-element", "opt-barrier"})
"""These have several values, or run other computations, whose instructions are read there."""


def element_types(text: str) -> set[str]:
    """The element types, such as ``f32``, of the arrays that a program takes in, and of what it makes of wider floats.

    Of numbers that it makes of integers, truth values and constants alone, as a mask or an accuracy, there is no wider
    value that they could have lost digits of. Raises `HloError` for text that cannot be read.
    """
    module = parse(text)
    taken = {
        shape.dtype
        for instruction in module.entry.instructions
        if instruction.opcode == "parameter"
        for shape in instruction.shapes
        if shape.elements > 1
    }
    return taken.union(*(narrowed(instruction) for instruction in module.instructions))


def narrowed(instruction: Instruction) -> set[str]:
    """The floats that an instruction makes of wider ones. What hands on several values as they are makes none."""
    if instruction.opcode in HANDS_ON:
        return set()
    widest = max((BITS[name] for read in instruction.operands for name in floats_of(read)), default=0)
    return {name for name in floats_of(instruction) if BITS[name] < widest}


def floats_of(instruction: Instruction) -> set[str]:
    """The floating-point types of its result, where that has more than one element."""
    return {s.dtype for s in instruction.shapes if s.elements > 1 and s.dtype.startswith(("f", "bf"))}


def held_arrays(text: str) -> set[Shape]:
    """The arrays that one device holds while it runs what `compiled.as_text()` prints, each shape once.

    Integers that are a function of positions and constants alone are counters, of which random bits are made: XLA:TPU
    stores them. They are no values of anybody's, and are left out unless one is larger than all else that is held.
    Raises `HloError` for text that cannot be read.
    """
    held: set[Shape] = set()
    counters: set[Shape] = set()
    for computation in parse(text).computations.values():
        if not any(caller.opcode.startswith("fusion") for caller in computation.callers):
            for instruction in computation.instructions:
                (counters if _is_counter(instruction) else held).update(instruction.shapes)
    if not held | counters:
        raise HloError("the program holds no array at all; expected a whole module")
    largest = max((shape.elements for shape in held), default=0)
    return held | {shape for shape in counters if shape.elements > largest}


def _is_counter(instruction: Instruction) -> bool:
    is_integer = instruction.type_text.startswith(("u", "s"))
    return is_integer and instruction.opcode not in HANDS_ON - {"fusion"} and is_of_position(Reached(instruction))
