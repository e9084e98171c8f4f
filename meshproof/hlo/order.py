"""Refuses what no compiler prints: operands that are not defined before their use, computations that call themselves.

Such text is damaged. Following it might never end, and what it lost would not be counted.
"""

from itertools import chain

from meshproof.hlo.errors import HloError
from meshproof.hlo.module import Computation, Instruction, Module


def check_order(module: Module) -> None:
    """Raises `HloError` unless every operand is defined before its use, and no computation calls itself."""
    for instruction in module.instructions:
        _check_operands(instruction)
    closed: set[Computation] = set()
    for computation in module.computations.values():
        _check_calls(computation, (), closed)


def _check_operands(instruction: Instruction) -> None:
    for operand in instruction.operands:
        if operand.line >= instruction.line:
            problem = f"operand {operand.name} is not defined before this line of computation"
            raise instruction.refuse(f"{problem} {instruction.computation.name}: the text is in disorder")


def _check_calls(computation: Computation, callers: tuple[Computation, ...], closed: set[Computation]) -> None:
    if computation in callers:
        raise HloError(f"computation {computation.name} calls itself", computation.line)
    if computation not in closed:
        for instruction in computation.instructions:
            for callee in chain.from_iterable(instruction.callees.values()):
                _check_calls(callee, (*callers, computation), closed)
        closed.add(computation)
