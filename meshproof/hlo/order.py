"""What no compiler prints: values that nothing before them defines, and computations that run themselves.

A text that has either is damaged. Following it could end in a circle, and what it lost would not be counted.
"""

from meshproof.hlo.dataflow import SOURCES, Dataflow
from meshproof.hlo.errors import HloError
from meshproof.hlo.parser import Computation


def check_order(flow: Dataflow) -> None:
    """Every operand is defined before its use, and no computation calls itself. Raises `HloError`."""
    for computation in flow.module.computations.values():
        _check_operands(flow, computation)
    closed: set[str] = set()
    for computation in flow.module.computations.values():
        _check_calls(flow, computation, (), closed)


def _check_operands(flow: Dataflow, computation: Computation) -> None:
    defined: set[str] = set()
    for instruction in computation.instructions:
        if instruction.opcode not in SOURCES and not defined.issuperset(flow.operands(computation, instruction)):
            missing = next(name for name in flow.operands(computation, instruction) if name not in defined)
            problem = f"operand {missing} is not defined before this line of computation {computation.name}"
            raise instruction.refuse(f"{problem}: the text has lost it, or is in disorder", instruction.operands_start)
        if instruction.name in defined:
            raise instruction.refuse(f"computation {computation.name} defines {instruction.name} twice")
        defined.add(instruction.name)


def _check_calls(flow: Dataflow, computation: Computation, callers: tuple[str, ...], closed: set[str]) -> None:
    if computation.name in callers:
        raise HloError(f"computation {computation.name} calls itself", computation.line)
    if computation.name not in closed:
        for callee in flow.called(computation):
            _check_calls(flow, callee, (*callers, computation.name), closed)
        closed.add(computation.name)
