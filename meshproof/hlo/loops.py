"""How often a while loop runs.

CPU and GPU print `known_trip_count` in the loop's backend config. TPU does not: there the count is derived from the
condition (induction variable against a constant), the variable's first value and the step the body adds to it. What
cannot be derived is None, *unknown*: never 1, never 0.
"""

import re
from typing import NamedTuple

from meshproof.hlo.dataflow import Dataflow, element_of, number_of
from meshproof.hlo.parser import Computation, Instruction

_KNOWN = re.compile(r'"known_trip_count":\s*\{\s*"n":\s*"?(\d{1,18})(?!\d)"?')
_DIRECTION = re.compile(r"\bdirection=([A-Z]+)")
_INTEGER = re.compile(r"-?\d{1,19}")
_SAME_VALUE = frozenset({"copy", "bitcast", "convert", "reshape", "copy-done", "copy-start"})
_MIRRORED = {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE", "NE": "NE"}


class Value(NamedTuple):
    """An integer (`element` is None), or an element of the loop's tuple plus an integer."""

    element: int | None
    offset: int


def trip_count(flow: Dataflow, computation: Computation, loop: Instruction) -> int | None:
    """Executions of the body of `loop` each time it is reached, or None where the text does not tell."""
    known = _KNOWN.search(loop.text, loop.operands_start)
    if known is not None:
        return int(known[1])
    callees = flow.callees(loop)
    if len(callees.get("body", ())) != 1 or len(callees.get("condition", ())) != 1:
        raise loop.refuse("expected a while with body= and condition=")
    body, condition = callees["body"][0], callees["condition"][0]
    comparison = _comparison(flow, condition)
    if comparison is None:
        return None
    induction, direction, bound = comparison
    limit = bound.offset if bound.element is None else _carried_constant(flow, computation, loop, body, bound)
    start = _first_value(flow, computation, loop, induction)
    step = _step(flow, body, induction)
    if limit is None or start is None or step is None:
        return None
    return _iterations(start + induction.offset, step, direction, limit)


def _iterations(start: int, step: int, direction: str, limit: int) -> int | None:
    if direction in ("GT", "GE"):
        start, step, limit = -start, -step, -limit
        direction = {"GT": "LT", "GE": "LE"}[direction]
    if direction == "NE":
        return (
            (limit - start) // step if step and (limit - start) % step == 0 and (limit - start) // step >= 0 else None
        )
    last = limit + (direction == "LE")
    if start >= last:
        return 0
    return -(-(last - start) // step) if step > 0 else None


def _comparison(flow: Dataflow, condition: Computation) -> tuple[Value, str, Value] | None:
    """(induction variable, direction, bound) of a condition that is one comparison, possibly fused."""
    found = _find_compare(flow, condition, condition.root, None)
    if found is None:
        return None
    left, direction, right = found
    if left.element is None:
        left, direction, right = right, _MIRRORED.get(direction, ""), left
    if left.element is None or direction not in _MIRRORED:
        return None
    return left, direction, right


def _find_compare(
    flow: Dataflow, computation: Computation, root: Instruction, given: list[Value | None] | None
) -> tuple[Value, str, Value] | None:
    if root.opcode == "compare":
        direction = _DIRECTION.search(root.text, root.operands_start)
        sides = [_value(flow, computation, name, given) for name in root.operands]
        if direction is None or len(sides) != 2 or sides[0] is None or sides[1] is None:
            return None
        return sides[0], direction[1], sides[1]
    if root.opcode in ("fusion", "call"):
        called = _only_callee(flow, root)
        arguments = [_value(flow, computation, name, given) for name in root.operands]
        return _find_compare(flow, called, called.root, arguments)
    return None


def _value(flow: Dataflow, computation: Computation, name: str, given: list[Value | None] | None) -> Value | None:
    """`name` as an integer or as an element of the loop's tuple plus one. `given` are a fused body's arguments."""
    instruction = flow.definition(computation, name)
    if instruction is None:
        return None
    match instruction.opcode:
        case "constant":
            literal = instruction.operands[0] if instruction.operands else ""
            return Value(None, int(literal)) if _INTEGER.fullmatch(literal) else None
        case "parameter" if given is not None:
            index = number_of(instruction)
            return given[index] if index < len(given) else None
        case "get-tuple-element" if given is None:
            source = flow.definition(computation, instruction.operands[0])
            is_element = source is not None and source.opcode == "parameter"
            return Value(element_of(instruction), 0) if is_element else None
        case "add" | "subtract":
            sides = [_value(flow, computation, operand, given) for operand in instruction.operands]
            return _sum(sides, 1 if instruction.opcode == "add" else -1)
        case "fusion" | "call":
            called = _only_callee(flow, instruction)
            arguments = [_value(flow, computation, operand, given) for operand in instruction.operands]
            return _value(flow, called, called.root.name, arguments)
        case opcode if opcode in _SAME_VALUE:
            return _value(flow, computation, instruction.operands[0], given)
    return None


def _sum(sides: list[Value | None], sign: int) -> Value | None:
    if len(sides) != 2 or sides[0] is None or sides[1] is None:
        return None
    left, right = sides[0], sides[1]
    if right.element is not None and (left.element is not None or sign < 0):
        return None
    return Value(left.element if left.element is not None else right.element, left.offset + sign * right.offset)


def _only_callee(flow: Dataflow, instruction: Instruction) -> Computation:
    return next(iter(flow.callees(instruction).values()))[0]


def _step(flow: Dataflow, body: Computation, induction: Value) -> int | None:
    after = _element_after(flow, body, induction)
    return after.offset if after is not None and after.element == induction.element else None


def _element_after(flow: Dataflow, body: Computation, element: Value) -> Value | None:
    """The loop tuple's element at the end of one execution of the body."""
    if body.root.opcode != "tuple" or element.element is None or element.element >= len(body.root.operands):
        return None
    return _value(flow, body, body.root.operands[element.element], None)


def _first_value(flow: Dataflow, computation: Computation, loop: Instruction, element: Value) -> int | None:
    """The loop tuple's element before the first execution, where it is a constant."""
    initial = flow.definition(computation, loop.operands[0])
    if initial is None or initial.opcode != "tuple" or element.element is None:
        return None
    value = _value(flow, computation, initial.operands[element.element], None)
    if value is None:
        return None
    if value.element is None:
        return value.offset
    return _outer_constant(flow, computation, value)


def _carried_constant(
    flow: Dataflow, computation: Computation, loop: Instruction, body: Computation, bound: Value
) -> int | None:
    """A bound that travels in the loop's tuple: constant if the body hands it on untouched."""
    if _element_after(flow, body, Value(bound.element, 0)) != Value(bound.element, 0):
        return None
    first = _first_value(flow, computation, loop, bound)
    return None if first is None else first + bound.offset


def _outer_constant(flow: Dataflow, body: Computation, value: Value) -> int | None:
    """An element of the tuple of the loop around this one, constant if that loop hands it on untouched."""
    sites = flow.call_sites.get(body.name, [])
    if len(sites) != 1 or sites[0].instruction.opcode != "while":
        return None
    return _carried_constant(flow, sites[0].caller, sites[0].instruction, body, value)
