"""How often a while loop runs.

CPU and GPU print `known_trip_count` in the loop's backend config. TPU does not: there the count is derived from the
condition (induction variable against a constant), the variable's first value and the step the body adds to it. What
cannot be derived is None, *unknown*: never 1, never 0.
"""

import re
from typing import NamedTuple

from meshproof.hlo.module import UNCHANGED, Instruction

_KNOWN = re.compile(r'"known_trip_count":\s*\{\s*"n":\s*"?(\d{1,18})(?!\d)"?')
_DIRECTION = re.compile(r"\bdirection=([A-Z]+)")
_MIRRORED = {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE", "NE": "NE"}


class Value(NamedTuple):
    """An integer (`element` is None), or an element of the loop's tuple plus an integer."""

    element: int | None
    offset: int


class Condition(NamedTuple):
    """The loop goes on while this element of its tuple, plus `offset`, compares so with `bound`."""

    element: int
    offset: int
    direction: str
    bound: Value


def trip_count(loop: Instruction) -> int | None:
    """Executions of the body of `loop` each time it is reached, or None where the text does not tell."""
    known = loop.search(_KNOWN)
    if known is not None:
        return int(known[1])
    condition = _read_condition(loop)
    if condition is None:
        return None
    start = _first_value(loop, condition.element)
    step = _step(loop, condition.element)
    limit = _constant(loop, condition.bound)
    if start is None or step is None or limit is None:
        return None
    return _iterations(start + condition.offset, step, condition.direction, limit)


def _iterations(start: int, step: int, direction: str, limit: int) -> int | None:
    if direction in ("GT", "GE"):
        start, step, limit = -start, -step, -limit
    if direction == "NE":
        count, rest = divmod(limit - start, step) if step else (0, 1)
        return count if rest == 0 and count >= 0 else None
    last = limit + (direction in ("LE", "GE"))
    if start >= last:
        return 0
    return -(-(last - start) // step) if step > 0 else None


def _read_condition(loop: Instruction) -> Condition | None:
    """The condition of a loop, if it is one comparison of an element with something, possibly in a fusion."""
    (computation,) = loop.callees["condition"]
    found = _find_compare(computation.root, None)
    if found is None:
        return None
    left, direction, right = found
    if left.element is None:
        left, direction, right = right, _MIRRORED.get(direction, ""), left
    if left.element is None or direction not in _MIRRORED:
        return None
    return Condition(left.element, left.offset, direction, right)


def _find_compare(root: Instruction, given: list[Value | None] | None) -> tuple[Value, str, Value] | None:
    if root.opcode == "compare":
        direction = root.search(_DIRECTION)
        sides = [_value(side, given) for side in root.operands]
        if direction is None or len(sides) != 2 or sides[0] is None or sides[1] is None:
            return None
        return sides[0], direction[1], sides[1]
    if root.opcode in ("fusion", "call"):
        return _find_compare(root.called.root, [_value(operand, given) for operand in root.operands])
    return None


def _value(instruction: Instruction, given: list[Value | None] | None = None) -> Value | None:
    """An integer, or an element of the loop's tuple plus one. `given` are the arguments of the fusion it stands in."""
    match instruction.opcode:
        case "constant":
            return Value(None, instruction.integer) if instruction.integer is not None else None
        case "parameter" if given is not None:
            index = instruction.parameter_number
            return given[index] if index < len(given) else None
        case "get-tuple-element" if given is None:
            is_element = instruction.operand(0).opcode == "parameter"
            return Value(instruction.tuple_index, 0) if is_element else None
        case "add" | "subtract":
            sides = [_value(operand, given) for operand in instruction.operands]
            return _sum(sides, 1 if instruction.opcode == "add" else -1)
        case "fusion" | "call":
            return _value(instruction.called.root, [_value(operand, given) for operand in instruction.operands])
        case opcode if opcode in UNCHANGED:
            return _value(instruction.operand(0), given)
    return None


def _sum(sides: list[Value | None], sign: int) -> Value | None:
    if len(sides) != 2 or sides[0] is None or sides[1] is None:
        return None
    left, right = sides[0], sides[1]
    if right.element is not None and (left.element is not None or sign < 0):
        return None
    return Value(left.element if left.element is not None else right.element, left.offset + sign * right.offset)


def _step(loop: Instruction, element: int) -> int | None:
    """What one execution of the body adds to an element of the loop's tuple."""
    (body,) = loop.callees["body"]
    if body.root.opcode != "tuple" or element >= len(body.root.operands):
        return None
    after = _value(body.root.operand(element))
    return after.offset if after is not None and after.element == element else None


def _first_value(loop: Instruction, element: int) -> int | None:
    """An element of the loop's tuple before the first execution, where it is a constant."""
    initial = loop.operand(0)
    if initial.opcode != "tuple":
        return None
    value = _value(initial.operand(element))
    if value is None or value.element is None:
        return None if value is None else value.offset
    outer = loop.computation.only_caller
    return _constant(outer, value) if outer is not None and outer.opcode == "while" else None


def _constant(loop: Instruction, value: Value) -> int | None:
    """A value in a loop, if it is the same in every iteration: an integer, or an element to which the body adds 0."""
    if value.element is None:
        return value.offset
    first = _first_value(loop, value.element) if _step(loop, value.element) == 0 else None
    return None if first is None else first + value.offset
