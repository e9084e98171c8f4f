"""Where each device slices: offsets as functions of the partition, evaluated for every one of them.

Partitioned programs compute a device's own shard as `dynamic-slice(x, f(partition-id))`, where f is integer arithmetic
or a table. Evaluating f for every position tells a slice over the right axis from one over another axis of the same
size. Where a table is elided from the text, or the arithmetic is unknown, f must at least depend on the partition and
on nothing else but constants.
"""

import operator
import re
from collections.abc import Callable

from meshproof.hlo.dataflow import CallSite, Dataflow, element_of, number_of
from meshproof.hlo.parser import Computation, Instruction
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
_SAME = frozenset({"copy", "convert", "bitcast", "reshape", "broadcast", "copy-done", "copy-start"})
_TABLE = re.compile(r"constant\(\{([-\d,\s]*)\}\)")


class OffsetReader:
    """Reads offsets that depend on the partition alone."""

    def __init__(self, flow: Dataflow, devices: int) -> None:
        self._flow = flow
        self._devices = devices
        self._values: dict[tuple[str, ...], Values | None] = {}

    def differ(
        self,
        computation: Computation,
        instruction: Instruction,
        first: int,
        groups: Groups,
        inside: tuple[CallSite, ...] = (),
    ) -> bool:
        """Do the offsets (operands from `first` on) differ between any two members of each group?"""
        operands = range(first, len(self._flow.operands(computation, instruction)))
        offsets = [self._flow.operand(computation, instruction, index) for index in operands]
        columns = [self._evaluate(computation, offset, inside) for offset in offsets]
        known = [column for column in columns if column is not None]
        if len(known) < len(columns):
            depends = [self._depends(computation, offset, inside) for offset in offsets]
            return None not in depends and any(depends)
        places = list(zip(*known, strict=True)) if known else [()] * self._devices
        return all(len({places[member] for member in group}) == len(group) for group in groups)

    def only_site(self, computation: Computation) -> CallSite | None:
        """The one fusion or call that runs this computation."""
        sites = self._flow.call_sites.get(computation.name, [])
        if len(sites) == 1 and sites[0].instruction.opcode in ("fusion", "call"):
            return sites[0]
        return None

    def _evaluate(self, computation: Computation, at: Instruction, inside: tuple[CallSite, ...]) -> Values | None:
        """The value on every device, or None."""
        key = (computation.name, at.name, *(site.instruction.name for site in inside))
        if key not in self._values:
            self._values[key] = self._compute(computation, at, inside)
        return self._values[key]

    def _compute(self, computation: Computation, at: Instruction, inside: tuple[CallSite, ...]) -> Values | None:
        opcode = at.opcode
        if opcode == "partition-id":
            return tuple(range(self._devices))
        if opcode == "replica-id":
            return (0,) * self._devices
        if opcode == "constant":
            literal = at.operands[0] if len(at.operands) == 1 else ""
            return (int(literal),) * self._devices if re.fullmatch(r"-?\d{1,19}", literal) else None
        if opcode in _SAME:
            return self._evaluate(computation, self._flow.operand(computation, at, 0), inside)
        if opcode in _ARITHMETIC:
            left = self._evaluate(computation, self._flow.operand(computation, at, 0), inside)
            right = self._evaluate(computation, self._flow.operand(computation, at, 1), inside)
            if left is None or right is None:
                return None
            return tuple(map(_ARITHMETIC[opcode], left, right))
        if opcode in ("dynamic-slice", "gather"):
            return self._look_up(computation, at, inside)
        moved = self._step_out_or_in(computation, at, inside)
        return None if moved is None else self._evaluate(*moved)

    def _look_up(self, computation: Computation, at: Instruction, inside: tuple[CallSite, ...]) -> Values | None:
        """A table indexed by the partition: `dynamic-slice(constant({0,0,64,64}), i)`."""
        source = self._origin(computation, self._flow.operand(computation, at, 0), inside)
        table = _TABLE.search(source.text, source.type_end) if source is not None else None
        if at.opcode != "dynamic-slice" or table is None or len(at.operands) != 2:
            return None
        places = self._evaluate(computation, self._flow.operand(computation, at, 1), inside)
        literals = [entry.strip() for entry in table[1].split(",") if entry.strip()]
        if not all(re.fullmatch(r"-?\d{1,19}", literal) for literal in literals):
            return None
        entries = [int(literal) for literal in literals]
        if places is None or any(not 0 <= place < len(entries) for place in places):
            return None
        return tuple(entries[place] for place in places)

    def _origin(self, computation: Computation, at: Instruction, inside: tuple[CallSite, ...]) -> Instruction | None:
        while at.opcode != "constant":
            if at.opcode in _SAME:
                at = self._flow.operand(computation, at, 0)
                continue
            moved = self._step_out_or_in(computation, at, inside)
            if moved is None:
                return None
            computation, at, inside = moved
        return at

    def _step_out_or_in(
        self, computation: Computation, at: Instruction, inside: tuple[CallSite, ...]
    ) -> tuple[Computation, Instruction, tuple[CallSite, ...]] | None:
        """From a fusion to its root, from its parameter to its argument, from a loop's constant to its first value."""
        if at.opcode in ("fusion", "call") and not at.type_text.startswith("("):
            called = next(iter(self._flow.callees(at).values()))[0]
            return called, called.root, (*inside, CallSite(computation, at))
        if at.opcode == "parameter":
            site = inside[-1] if inside else self.only_site(computation)
            if site is None or self._flow.callees(site.instruction).get("body"):
                return None
            argument = self._flow.operand(site.caller, site.instruction, number_of(at))
            return site.caller, argument, inside[:-1]
        if at.opcode == "get-tuple-element" and not inside:
            return self._before_loop(computation, at)
        return None

    def _before_loop(
        self, body: Computation, at: Instruction
    ) -> tuple[Computation, Instruction, tuple[CallSite, ...]] | None:
        sites = self._flow.call_sites.get(body.name, [])
        element = self._carried_element(body, at)
        if element is None or len(sites) != 1 or body.root.opcode != "tuple":
            return None
        caller, loop = sites[0]
        if (
            loop.opcode != "while"
            or self._carried_element(body, self._flow.operand(body, body.root, element)) != element
        ):
            return None
        initial = self._flow.operand(caller, loop, 0)
        if initial.opcode != "tuple":
            return None
        return caller, self._flow.operand(caller, initial, element), ()

    def _carried_element(self, body: Computation, at: Instruction) -> int | None:
        """Which element of the loop's tuple this value is, if it is one untouched."""
        if at.opcode != "get-tuple-element" or self._flow.operand(body, at, 0).opcode != "parameter":
            return None
        return element_of(at)

    def _depends(self, computation: Computation, at: Instruction, inside: tuple[CallSite, ...]) -> bool | None:
        """True: on the partition and constants alone. False: on constants alone. None: on something else."""
        if at.opcode == "partition-id":
            return True
        if at.opcode in ("constant", "replica-id", "iota"):
            return False
        moved = self._step_out_or_in(computation, at, inside)
        if moved is not None:
            return self._depends(*moved)
        if at.opcode in ("parameter", "get-tuple-element") or not at.operands:
            return None
        parts = [
            self._depends(computation, self._flow.operand(computation, at, index), inside)
            for index in range(len(at.operands))
        ]
        return None if None in parts else any(parts)
