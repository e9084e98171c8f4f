"""The arrays that a compiled program holds on a device.

Every result of an instruction is one, except inside a fusion: what a fusion computes on the way to its result is not
stored.
"""

from meshproof.hlo.errors import HloError
from meshproof.hlo.parser import parse
from meshproof.hlo.shapes import Shape


def element_types(text: str) -> set[str]:
    """The element types, such as ``f32``, of all that a program computes and that has more than one element.

    Raises `HloError` for text that cannot be read.
    """
    return {
        shape.dtype for instruction in parse(text).instructions for shape in instruction.shapes if shape.elements > 1
    }


def held_arrays(text: str) -> set[Shape]:
    """The arrays that one device holds while it runs what `compiled.as_text()` prints, each shape once.

    Raises `HloError` for text that cannot be read.
    """
    held = {
        shape
        for computation in parse(text).computations.values()
        if not any(caller.opcode.startswith("fusion") for caller in computation.callers)
        for instruction in computation.instructions
        for shape in instruction.shapes
    }
    if not held:
        raise HloError("the program holds no array at all; expected a whole module")
    return held
