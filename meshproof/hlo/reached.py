"""Values followed to where they are computed: through copies and loops, into fusions and calls, and out of them."""

from __future__ import annotations

from typing import NamedTuple

from meshproof.hlo.module import UNCHANGED, Instruction

_ENTERED = ("fusion", "call")


class Reached(NamedTuple):
    """An instruction, and the fusions and calls that were entered to reach it, the outermost first."""

    instruction: Instruction
    inside: tuple[Instruction, ...] = ()

    @property
    def operands(self) -> list[Reached]:
        """What it reads, in order."""
        return [Reached(operand, self.inside) for operand in self.instruction.operands]

    def operand(self, index: int) -> Reached:
        """What it reads at this place. Raises `HloError` where it reads fewer."""
        return Reached(self.instruction.operand(index), self.inside)

    @property
    def users(self) -> list[tuple[Reached, int]]:
        """Who reads this value, and as which operand."""
        return [(Reached(user, self.inside), index) for user, index in self.instruction.users]

    def into(self, instruction: Instruction) -> Reached:
        """An instruction of the computation that this fusion or call runs."""
        return Reached(instruction, (*self.inside, self.instruction))

    @property
    def caller(self) -> Reached | None:
        """The fusion or call that it stands in: the last one entered, else the only one that runs its computation."""
        if self.inside:
            return Reached(self.inside[-1], self.inside[:-1])
        only = self.instruction.computation.only_caller
        return Reached(only) if only is not None and only.opcode in _ENTERED else None

    @property
    def origin(self) -> Reached:
        """What computes this value, or an array of its elements in another order, shape or type."""
        at = self
        while True:
            before = at.operand(0) if at.instruction.opcode in UNCHANGED else at._across_a_border()
            if before is None:
                return at
            at = before

    def _across_a_border(self) -> Reached | None:
        """From a fusion to its root, from a parameter to its argument, from what a loop keeps to what it was given."""
        instruction = self.instruction
        if instruction.opcode in _ENTERED:
            return self.into(instruction.called.root)
        if instruction.opcode == "parameter":
            caller = self.caller
            return caller.operand(instruction.parameter_number) if caller is not None else None
        if instruction.opcode != "get-tuple-element":
            return None
        whole = self.operand(0)
        if whole.instruction.opcode == "while":
            return _before(whole.instruction, instruction.tuple_index)
        if whole.instruction.opcode in _ENTERED:
            root = whole.into(whole.instruction.called.root)
            return root.operand(instruction.tuple_index) if root.instruction.opcode == "tuple" else None
        return _before_loop(instruction)


def _before_loop(taken: Instruction) -> Reached | None:
    """What an element of the tuple in a loop's body was before the first iteration."""
    loop = taken.computation.only_caller
    if loop is None or loop.opcode != "while" or taken.operand(0).opcode != "parameter":
        return None
    return _before(loop, taken.tuple_index) if loop.callees["body"] == [taken.computation] else None


def _before(loop: Instruction, index: int) -> Reached | None:
    """What an element of a loop's tuple is before, in and after it, if every iteration hands it on untouched."""
    [body], initial = loop.callees["body"], loop.operand(0)
    if body.root.opcode != "tuple" or initial.opcode != "tuple":
        return None
    handed_on = body.root.operand(index)
    is_kept = handed_on.opcode == "get-tuple-element" and handed_on.operand(0).opcode == "parameter"
    return Reached(initial.operand(index)) if is_kept and handed_on.tuple_index == index else None
