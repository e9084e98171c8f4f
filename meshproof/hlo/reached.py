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

    @property
    def carried(self) -> Reached | None:
        """What an element of a loop's tuple, in its body or after it, was before the first iteration."""
        if self.instruction.opcode != "get-tuple-element":
            return None
        whole = self.instruction.operand(0)
        loop = whole if whole.opcode == "while" else whole.computation.only_caller
        if loop is None or loop.opcode != "while" or whole.opcode not in ("while", "parameter"):
            return None
        initial = loop.operand(0)
        return Reached(initial.operand(self.instruction.tuple_index)) if initial.opcode == "tuple" else None

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
        if whole.instruction.opcode in _ENTERED:
            root = whole.into(whole.instruction.called.root)
            return root.operand(instruction.tuple_index) if root.instruction.opcode == "tuple" else None
        before = self.carried
        return before if before is not None and _is_kept(instruction) else None


def _is_kept(taken: Instruction) -> bool:
    """Whether every iteration of the loop that an element is taken from, in it or after it, hands it on untouched."""
    whole = taken.operand(0)
    body = whole.callees["body"][0] if whole.opcode == "while" else taken.computation
    if body.root.opcode != "tuple":
        return False
    handed_on = body.root.operand(taken.tuple_index)
    is_element = handed_on.opcode == "get-tuple-element" and handed_on.operand(0).opcode == "parameter"
    return is_element and handed_on.tuple_index == taken.tuple_index
