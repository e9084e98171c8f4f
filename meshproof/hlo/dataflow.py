"""Who defines, uses and calls what. Built per computation when first asked for, and kept."""

import re
from collections.abc import Iterator
from functools import cached_property
from itertools import chain
from typing import NamedTuple

from meshproof.hlo.errors import unknown
from meshproof.hlo.parser import Computation, Instruction, Module

# Which attributes of which opcodes name computations that run. A while also runs its condition.
CALLERS = {
    "fusion": ("calls",),
    "fusion-start": ("calls",),
    "call": ("to_apply",),
    "call-start": ("to_apply", "calls"),
    "async-start": ("calls",),
    "while": ("body", "condition"),
    "conditional": ("branch_computations", "true_computation", "false_computation"),
}
_NAME = re.compile(r"%?([^\s,{}%]+)")
_CALLS = re.compile(r", calls=%?([^\s,]+)")
SOURCES = frozenset({"parameter", "constant", "iota", "partition-id", "replica-id"})
_INDEX = re.compile(r", index=(\d{1,9})(?!\d)")
_NUMBER = re.compile(r"\d{1,9}")


def element_of(instruction: Instruction) -> int:
    """The index a get-tuple-element takes."""
    match = _INDEX.search(instruction.text, instruction.operands_start)
    if match is None:
        raise instruction.refuse("expected a get-tuple-element with index=")
    return int(match[1])


def number_of(parameter: Instruction) -> int:
    """Which argument a parameter is."""
    match parameter.operands:
        case (number,) if _NUMBER.fullmatch(number):
            return int(number)
    raise parameter.refuse("expected a parameter with its number, as in parameter(0)")


class CallSite(NamedTuple):
    """An instruction that runs a computation, and the computation it stands in."""

    caller: Computation
    instruction: Instruction


class Dataflow:
    """Definitions, uses and call sites of a module."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self._definitions: dict[str, dict[str, Instruction]] = {}
        self._users: dict[str, dict[str, list[tuple[Instruction, int]]]] = {}
        self._parameters: dict[str, dict[int, Instruction]] = {}
        self._operands: dict[str, dict[str, tuple[str, ...]]] = {}
        self._takers: dict[tuple[str, str], dict[int, list[Instruction]] | None] = {}

    def definition(self, computation: Computation, name: str) -> Instruction | None:
        """The instruction of this name, if the computation has one."""
        return self.definitions(computation).get(name)

    def definitions(self, computation: Computation) -> dict[str, Instruction]:
        """Instructions of a computation by name."""
        if computation.name not in self._definitions:
            found = {instruction.name: instruction for instruction in computation.instructions}
            self._definitions[computation.name] = found
        return self._definitions[computation.name]

    def operand(self, computation: Computation, instruction: Instruction, index: int) -> Instruction:
        """What defines an operand. Raises `HloError` where nothing in the computation does."""
        operands = self.operands(computation, instruction)
        found = self.definition(computation, operands[index]) if index < len(operands) else None
        if found is None:
            raise instruction.refuse(f"operand {index} is not defined in computation {computation.name}")
        return found

    def operands(self, computation: Computation, instruction: Instruction) -> tuple[str, ...]:
        """Names of the operands, read once."""
        known = self._operands.setdefault(computation.name, {})
        if instruction.name not in known:
            known[instruction.name] = instruction.operands
        return known[instruction.name]

    def users(self, computation: Computation, name: str) -> list[tuple[Instruction, int]]:
        """Who reads this value, and as which operand."""
        if computation.name not in self._users:
            users: dict[str, list[tuple[Instruction, int]]] = {}
            for instruction in computation.instructions:
                if instruction.opcode not in SOURCES:
                    for index, operand in enumerate(instruction.operands):
                        users.setdefault(operand, []).append((instruction, index))
            self._users[computation.name] = users
        return self._users[computation.name].get(name, [])

    def parameter(self, computation: Computation, index: int) -> Instruction | None:
        """The parameter of this number, if the computation has one."""
        if computation.name not in self._parameters:
            found = {number_of(i): i for i in computation.instructions if i.opcode == "parameter"}
            self._parameters[computation.name] = found
        return self._parameters[computation.name].get(index)

    def takers(self, computation: Computation, name: str) -> dict[int, list[Instruction]] | None:
        """Who takes which element of a tuple, or None if anything but a get-tuple-element reads it."""
        key = (computation.name, name)
        if key not in self._takers:
            found: dict[int, list[Instruction]] | None = {}
            for user, _ in self.users(computation, name):
                if user.opcode != "get-tuple-element" or found is None:
                    found = None
                    break
                found.setdefault(element_of(user), []).append(user)
            self._takers[key] = found
        return self._takers[key]

    def callees(self, instruction: Instruction) -> dict[str, list[Computation]]:
        """Computations this instruction runs, by the attribute that names them."""
        if instruction.opcode == "fusion":  # by far the most frequent: spare it the reading of all its attributes
            match = _CALLS.search(instruction.text, instruction.operands_start)
            if match is not None:
                return {"calls": [self._computation(instruction, match[1])]}
        values = instruction.attributes
        found = {
            attribute: [self._computation(instruction, name) for name in _NAME.findall(values[attribute][0])]
            for attribute in CALLERS.get(instruction.opcode, ())
            if attribute in values
        }
        incomplete = instruction.opcode == "while" and [len(callees) for callees in found.values()] != [1, 1]
        if (not found or incomplete) and instruction.opcode in CALLERS:
            wanted = "=, ".join(CALLERS[instruction.opcode])
            raise instruction.refuse(unknown(f"{instruction.opcode} names not what it runs; expected {wanted}="))
        return found

    def _computation(self, instruction: Instruction, name: str) -> Computation:
        if name not in self.module.computations:
            raise instruction.refuse(f"computation {name} is not in the text: it is truncated")
        return self.module.computations[name]

    def called(self, computation: Computation) -> Iterator[Computation]:
        """Every computation that one runs, as often as it does."""
        for instruction in computation.instructions:
            if instruction.opcode in CALLERS:
                yield from chain.from_iterable(self.callees(instruction).values())

    @cached_property
    def call_sites(self) -> dict[str, list[CallSite]]:
        """Per computation, the instructions that run it."""
        sites: dict[str, list[CallSite]] = {}
        for computation in self.module.computations.values():
            for instruction in computation.instructions:
                if instruction.opcode in CALLERS:
                    for callees in self.callees(instruction).values():
                        for callee in callees:
                            sites.setdefault(callee.name, []).append(CallSite(computation, instruction))
        return sites
