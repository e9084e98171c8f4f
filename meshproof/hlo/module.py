"""A compiled program: a module of computations, whose instructions know what they read, who reads them, what they run.

`parse` builds one, and nothing changes it afterwards. Operands, attributes, users and calls are read from the text when
they are first asked for, and kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, ValuesView
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain

from meshproof.hlo.errors import HloError, unknown
from meshproof.hlo.lexing import COMMENT, split
from meshproof.hlo.shapes import Shape, read_shapes

# Which attributes of which opcodes name the computations that run, in each way to spell it.
CALLERS = {
    "fusion": (("calls",),),
    "fusion-start": (("calls",),),
    "call": (("to_apply",),),
    "call-start": (("to_apply",), ("calls",)),
    "async-start": (("calls",),),
    "while": (("body", "condition"),),
    "conditional": (("branch_computations",), ("true_computation", "false_computation")),
}
# One for all instructions that run nothing: a dict for each of them is work for Python's garbage collector.
_NONE: dict[str, list[Computation]] = {}
# These hand on their operand's elements in another order, shape, type or place.
UNCHANGED = frozenset({"copy", "bitcast", "reshape", "convert", "transpose", "copy-done", "copy-start"})
# Between the brackets of these stands a literal, or nothing.
_SOURCES = frozenset({"parameter", "constant", "iota", "partition-id", "replica-id"})
_NAME = re.compile(r"%?([^\s,{}%]+)")
_CALLS = re.compile(r", calls=%?([^\s,]+)")
_INDEX = re.compile(r", index=(\d{1,9})(?!\d)")
_COUNT = re.compile(r"[0-9]{1,9}")
_INTEGER = re.compile(r"-?[0-9]{1,19}")


@dataclass(slots=True, eq=False)
class Instruction:
    """One instruction as printed. `text` is its whole line; the numbers are offsets into it."""

    computation: Computation = field(repr=False)
    name: str
    opcode: str
    text: str
    line: int
    type_start: int
    type_end: int
    operands_start: int
    is_root: bool
    _operands: tuple[Instruction, ...] | None = field(default=None, init=False, repr=False)
    _attributes: dict[str, tuple[str, int]] | None = field(default=None, init=False, repr=False)
    _callees: dict[str, list[Computation]] | None = field(default=None, init=False, repr=False)

    @property
    def type_text(self) -> str:
        """The result's type as printed, layouts included."""
        return self.text[self.type_start : self.type_end]

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """The arrays of the result, tuples flattened."""
        return read_shapes(self.type_text, self.line, self.type_start + 1, self.text)

    @property
    def operands(self) -> tuple[Instruction, ...]:
        """What it reads, in order. Raises `HloError` for a name that the computation does not define."""
        if self._operands is None:
            names = () if self.opcode in _SOURCES else self._in_brackets()[0]
            try:
                self._operands = tuple(map(self.computation.by_name.__getitem__, names))
            except KeyError as missing:
                problem = f"operand {missing.args[0]} is not defined in computation {self.computation.name}"
                raise self.refuse(f"{problem}: the text has lost it", self.operands_start) from None
        return self._operands

    def operand(self, index: int) -> Instruction:
        """What it reads at this place. Raises `HloError` where it reads fewer."""
        if index >= len(self.operands):
            raise self.refuse(f"expected an operand {index}, saw {len(self.operands)} operands")
        return self.operands[index]

    @property
    def users(self) -> list[tuple[Instruction, int]]:
        """Who reads this value, and as which operand."""
        return self.computation.users.get(self, [])

    @property
    def literal(self) -> str:
        """The number of a parameter, the value of a constant; empty where several or none are printed."""
        printed, _ = self._in_brackets()
        return printed[0] if len(printed) == 1 else ""

    @property
    def integer(self) -> int | None:
        """The value of a constant that is one integer."""
        return int(self.literal) if _INTEGER.fullmatch(self.literal) else None

    @property
    def parameter_number(self) -> int:
        """Which argument a parameter is."""
        if not _COUNT.fullmatch(self.literal):
            raise self.refuse("expected a parameter with its number, as in parameter(0)")
        return int(self.literal)

    @property
    def tuple_index(self) -> int:
        """Which element a get-tuple-element takes."""
        found = self.search(_INDEX)
        if found is None:
            raise self.refuse("expected a get-tuple-element with index=")
        return int(found[1])

    @property
    def attributes(self) -> dict[str, tuple[str, int]]:
        """`name=value` pairs after the operands: each value as printed, and its offset in `text`."""
        if self._attributes is None:
            spans, end = split(self.text, self._in_brackets()[1] + 1)
            if end < len(self.text):
                raise self.refuse("unbalanced brackets after the operands", end)
            pairs = ((*self.text[begin:stop].partition("="), stop) for begin, stop in spans)
            self._attributes = {key.strip(): (value, stop - len(value)) for key, sign, value, stop in pairs if sign}
        return self._attributes

    def attribute(self, name: str) -> str:
        """The value of an attribute as printed; empty where it has none of this name."""
        return self.attributes.get(name, ("", 0))[0]

    @property
    def callees(self) -> dict[str, list[Computation]]:
        """The computations it runs, by the attribute that names them. Raises `HloError` where the text lacks one."""
        if self._callees is None:
            self._callees = self._read_callees() if self.opcode in CALLERS else _NONE
        return self._callees

    @property
    def called(self) -> Computation:
        """The one computation that a fusion, a call or an async-start runs."""
        return next(iter(self.callees.values()))[0]

    def search(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """The first match after the opcode."""
        return pattern.search(self.text, self.operands_start)

    def refuse(self, problem: str, offset: int | None = None) -> HloError:
        """An error that points into this line, at the opcode unless told otherwise."""
        column = (self.type_end + 1 if offset is None else offset) + 1
        return HloError(problem, self.line, column, self.text)

    def _in_brackets(self) -> tuple[tuple[str, ...], int]:
        """Names of the operands, or a literal, and the offset of the bracket that closes them."""
        text, start = self.text, self.operands_start
        end = text.find(")", start)
        plain = text[start:end]
        if end < 0 or "(" in plain or "{" in plain or '"' in plain:  # a literal, or operands printed with their types
            spans, end = split(text, start)
            if end >= len(text):
                raise self.refuse("unbalanced brackets: the line is cut off", start)
            parts = (COMMENT.sub("", text[begin:stop]).strip() for begin, stop in spans)
            return tuple(part.rpartition(" ")[2].removeprefix("%") for part in parts if part), end
        if "/*" in plain:
            plain = COMMENT.sub("", plain)
        return tuple(plain.replace("%", "").split(", ")) if plain else (), end

    def _read_callees(self) -> dict[str, list[Computation]]:
        if self.opcode == "fusion":  # the most frequent by far: its other attributes are not read
            found = self.search(_CALLS)
            if found is not None:
                return {"calls": [self._computation(found[1])]}
        callees = {
            attribute: [self._computation(name) for name in _NAME.findall(self.attribute(attribute))]
            for attribute in chain(*CALLERS[self.opcode])
            if attribute in self.attributes
        }
        is_one_each = all(len(named) == 1 or attribute == "branch_computations" for attribute, named in callees.items())
        if tuple(callees) not in CALLERS[self.opcode] or not is_one_each or not all(callees.values()):
            expected = " or ".join(", ".join(f"{name}=" for name in spelling) for spelling in CALLERS[self.opcode])
            raise self.refuse(unknown(f"{self.opcode} does not name what it runs; expected {expected}"))
        return callees

    def _computation(self, name: str) -> Computation:
        found = self.computation.module.computations.get(name)
        if found is None:
            raise self.refuse(f"computation {name} is not in the text: it is truncated")
        return found


@dataclass(eq=False)
class Computation:
    """A named body: its instructions by name, as printed (scheduled text: in the order they run), and its root."""

    module: Module = field(repr=False)
    name: str
    is_entry: bool
    line: int
    by_name: dict[str, Instruction] = field(default_factory=dict, repr=False)
    root: Instruction = field(init=False, repr=False)

    @property
    def instructions(self) -> ValuesView[Instruction]:
        """The instructions, as printed."""
        return self.by_name.values()

    @cached_property
    def users(self) -> dict[Instruction, list[tuple[Instruction, int]]]:
        """Per instruction, who reads it, and as which operand."""
        found: dict[Instruction, list[tuple[Instruction, int]]] = {}
        for instruction in self.instructions:
            for index, operand in enumerate(instruction.operands):
                found.setdefault(operand, []).append((instruction, index))
        return found

    @cached_property
    def takers(self) -> dict[Instruction, dict[int, list[Instruction]]]:
        """Per tuple that only get-tuple-elements read, who takes which element."""
        found: dict[Instruction, dict[int, list[Instruction]]] = {}
        for value, users in self.users.items():
            if all(user.opcode == "get-tuple-element" for user, _ in users):
                taken = found[value] = {}
                for user, _ in users:
                    taken.setdefault(user.tuple_index, []).append(user)
        return found

    @cached_property
    def parameters(self) -> dict[int, Instruction]:
        """The parameters by number."""
        return {found.parameter_number: found for found in self.instructions if found.opcode == "parameter"}

    @property
    def callers(self) -> list[Instruction]:
        """The instructions that run it, as often as they name it."""
        return self.module.callers.get(self, [])

    @property
    def only_caller(self) -> Instruction | None:
        """The one instruction that runs it, if it is one."""
        return self.callers[0] if len(self.callers) == 1 else None


@dataclass(eq=False)
class Module:
    """A compiled program: header attributes as printed, computations by name, and the one that runs."""

    name: str
    attributes: dict[str, str]
    computations: dict[str, Computation] = field(default_factory=dict, repr=False)
    entry: Computation = field(init=False)

    @property
    def instructions(self) -> Iterator[Instruction]:
        """The instructions of all computations, as printed."""
        return chain.from_iterable(computation.instructions for computation in self.computations.values())

    @cached_property
    def callers(self) -> dict[Computation, list[Instruction]]:
        """Per computation, the instructions that run it."""
        found: dict[Computation, list[Instruction]] = {}
        for instruction in self.instructions:
            for callee in chain.from_iterable(instruction.callees.values()):
                found.setdefault(callee, []).append(instruction)
        return found

    @property
    def replica_count(self) -> int:
        """Replicas of the program; 1 where the header is silent."""
        return self._count("replica_count")

    @property
    def num_partitions(self) -> int:
        """Devices one replica is partitioned over; 1 where the header is silent."""
        return self._count("num_partitions")

    @property
    def is_scheduled(self) -> bool:
        """Whether instructions stand in the order they run."""
        return self.attributes.get("is_scheduled") == "true"

    def _count(self, attribute: str) -> int:
        spelled = self.attributes.get(attribute, "1")
        if not _COUNT.fullmatch(spelled):
            raise HloError(f"{attribute}={spelled[:40]} in the module header; expected a number")
        return int(spelled)
