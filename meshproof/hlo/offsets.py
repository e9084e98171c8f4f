"""Where each device slices: offsets as functions of the partition, evaluated for every one of them.

Partitioned programs compute a device's own shard as `dynamic-slice(x, f(partition-id))`, where f is integer arithmetic
or a table. Evaluating f for every position tells a slice over the right axis from one over another axis of the same
size. Where a table is elided from the text, or the arithmetic is unknown, f must at least depend on the partition and
on nothing else but constants.
"""

import operator
import re
from collections.abc import Callable

from meshproof.hlo.reached import Reached
from meshproof.hlo.replica_groups import Groups

Values = tuple[int, ...]
_ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": lambda a, b: a // b if b else 0,
    "remainder": lambda a, b: a % b if b else 0,
    "and": operator.and_,
    "or": operator.or_,
    "shift-left": lambda a, b: a << b if 0 <= b < 64 else 0,
    "shift-right-logical": lambda a, b: a >> b if 0 <= b < 64 else 0,
    "shift-right-arithmetic": lambda a, b: a >> b if 0 <= b < 64 else 0,
    "maximum": max,
    "minimum": min,
}
_FIXED = ("partition-id", "replica-id", "constant", "iota")
_OF_ITS_OPERANDS = {*_ARITHMETIC, "broadcast", "clamp", "compare", "concatenate", "dynamic-slice", "select", "slice"}
_ENTRY = r"\s*-?[0-9]{1,19}\s*"
_TABLE = re.compile(rf"\{{({_ENTRY}(?:,{_ENTRY})*)\}}\)")


class OffsetReader:
    """Reads offsets that depend on the partition alone."""

    def __init__(self, devices: int) -> None:
        self._devices = devices
        self._values: dict[Reached, Values | None] = {}

    def differ(self, slicing: Reached, first: int, groups: Groups) -> bool:
        """Do the offsets (operands from `first` on) differ between any two members of each group?"""
        offsets = slicing.operands[first:]
        columns = [self._evaluate(offset) for offset in offsets]
        known = [column for column in columns if column is not None]
        if len(known) < len(columns):
            depends = [_depends(offset) for offset in offsets]
            return None not in depends and any(depends)
        places = list(zip(*known, strict=True)) if known else [()] * self._devices
        return all(len({places[member] for member in group}) == len(group) for group in groups)

    def _evaluate(self, at: Reached) -> Values | None:
        """The value on every device, or None where the text does not tell."""
        if at not in self._values:
            self._values[at] = self._compute(at.origin)
        return self._values[at]

    def _compute(self, at: Reached) -> Values | None:
        match at.instruction.opcode:
            case "partition-id":
                return tuple(range(self._devices))
            case "replica-id":
                return (0,) * self._devices
            case "constant":
                value = at.instruction.integer
                return None if value is None else (value,) * self._devices
            case "broadcast":
                return self._evaluate(at.operand(0))
            case "dynamic-slice":
                return self._look_up(at)
            case opcode if opcode in _ARITHMETIC:
                left, right = self._evaluate(at.operand(0)), self._evaluate(at.operand(1))
                return None if left is None or right is None else tuple(map(_ARITHMETIC[opcode], left, right))
        return None

    def _look_up(self, at: Reached) -> Values | None:
        """A table indexed by the partition: `dynamic-slice(constant({0,0,64,64}), i)`."""
        source, places = at.operand(0).origin.instruction, self._evaluate(at.operand(1))
        table = _TABLE.match(source.text, source.operands_start) if source.opcode == "constant" else None
        if table is None or places is None or len(at.operands) != 2:
            return None
        entries = list(map(int, table[1].split(",")))
        return tuple(entries[place] for place in places) if set(places) <= set(range(len(entries))) else None


def is_of_position(value: Reached) -> bool:
    """Is a value a function of the partition and of constants alone, so that every device could compute all of it?"""
    seen, open_ = {value}, [value]
    while open_:
        at = open_.pop().origin
        if at.instruction.opcode in _FIXED:
            continue
        if at.instruction.opcode not in _OF_ITS_OPERANDS:
            return False
        open_ += set(at.operands) - seen
        seen.update(at.operands)
    return True


def _depends(at: Reached) -> bool | None:
    """Whether a value depends on the partition, or None where it depends on more than that and constants."""
    at = at.origin
    match at.instruction.opcode:
        case "partition-id":
            return True
        case "constant" | "replica-id" | "iota":
            return False
        case "get-tuple-element":
            return None
    parts = [_depends(operand) for operand in at.operands]
    return None if not parts or None in parts else any(parts)
