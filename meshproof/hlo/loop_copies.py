"""Copies of large arrays inside loops: the cost of carried state that is not updated in place."""

import re
from dataclasses import dataclass

from meshproof.hlo.errors import refuse_depth
from meshproof.hlo.executions import Executions
from meshproof.hlo.module import Instruction
from meshproof.hlo.order import check_order
from meshproof.hlo.parser import parse
from meshproof.hlo.reached import Reached
from meshproof.hlo.shapes import Shape

_SPACE = re.compile(r"S\((\d+)\)")
_COPIES = ("copy", "copy-start")
_UPDATES = ("dynamic-update-slice", "scatter")


@dataclass(frozen=True)
class LoopCopy:
    """A copy of an array of this shape; ``executions`` per step, ``None`` where the text does not tell.

    ``argument`` is the number of the program's argument that is copied, as it came or as the loop has changed it so
    far; ``None`` where it is nothing of the kind, as an activation.
    """

    name: str
    shape: Shape
    executions: int | None
    line: int
    argument: int | None


def copies_in_loops(text: str, at_least_bytes: int) -> tuple[LoopCopy, ...]:
    """The copies of arrays of so many bytes or more that run inside loops, in the order of the text.

    A fusion that ends in a copy, or in several, is one. Moves between memories, as a TPU's prefetch into VMEM, are
    none. Raises `HloError` for text that cannot be read.
    """
    module = parse(text)
    with refuse_depth():
        check_order(module)
        executions = Executions(module)
        return tuple(
            LoopCopy(
                name=instruction.name,
                shape=copied.instruction.shapes[0],
                executions=executions.of(instruction.computation),
                line=instruction.line,
                argument=_argument(copied.operand(0)),
            )
            for computation in module.computations.values()
            if executions.is_in_loop(computation)
            and not any(caller.opcode.startswith("fusion") for caller in computation.callers)
            for instruction in computation.instructions
            for copied in _copied(instruction)
            if copied.instruction.shapes[0].bytes >= at_least_bytes
        )


def _copied(instruction: Instruction) -> list[Reached]:
    if instruction.opcode in _COPIES:
        return [Reached(instruction)] if not _changes_memory(instruction) else []
    if instruction.opcode != "fusion":
        return []
    root = instruction.called.root
    ends = root.operands if root.opcode == "tuple" else [root]
    return [Reached(instruction).into(value) for value in ends if value.opcode == "copy"]


def _argument(value: Reached) -> int | None:
    """The argument of the program that a value is, through loops that carry it and updates of parts of it."""
    at = value.origin
    while before := at.operand(0) if at.instruction.opcode in _UPDATES else at.carried:
        at = before.origin
    instruction = at.instruction
    is_entry = instruction.computation is instruction.computation.module.entry
    return instruction.parameter_number if is_entry and instruction.opcode == "parameter" else None


def _changes_memory(copy: Instruction) -> bool:
    """A ``copy-start`` has the type (destination, source, context)."""
    source = copy.operand(0).type_text
    types = copy.type_text.split("}, ") if copy.opcode == "copy-start" else [copy.type_text]
    return _SPACE.findall(types[0]) != _SPACE.findall(source)
