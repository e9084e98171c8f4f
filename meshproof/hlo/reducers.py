"""By what an all-reduce or a reduce-scatter makes one number of two."""

from meshproof.hlo.collectives import BASES
from meshproof.hlo.module import Instruction
from meshproof.hlo.parser import parse

_REDUCES = ("all-reduce", "reduce-scatter")
_EXTREMES = ("maximum", "minimum")


def reducer(reduction: Instruction) -> str:
    """The opcode, such as ``add``; empty where the text does not hold the computation."""
    called = reduction.computation.module.computations.get(reduction.attribute("to_apply").strip("% "))
    return called.root.opcode if called else ""


def takes_extremes(text: str) -> bool:
    """Whether devices find a largest or smallest float together.

    XLA:CPU drops NaN there: the maximum of 1 on one device and NaN on another is 1 (seen on jaxlib 0.10.2 and
    0.12.0.1). Raises `HloError` for text that cannot be read.
    """
    return any(
        BASES.get(each.opcode) in _REDUCES
        and reducer(each) in _EXTREMES
        and any("f" in shape.dtype for shape in each.shapes)
        for each in parse(text).instructions
    )
