"""TPU's asynchronous fusions: one collective, printed in several bodies.

A collective that runs beside compute is printed once in a fusion that ends in the custom call `AsyncCollectiveStart`,
again in every fusion it runs beside, and once more in the fusion that ends in `AsyncCollectiveDone`. The first is
counted; the others continue it. A fusion continues one if it ends it, or if it holds the collective of a started chain
(same operation, channel, groups and chain) and takes an operand from that chain, which a loop may carry. The channel
alone tells nothing: shard_map gives all its collectives channel 1.
"""

from functools import cached_property

from meshproof.hlo.collectives import BASES
from meshproof.hlo.errors import unknown
from meshproof.hlo.module import Computation, Instruction, Module
from meshproof.hlo.reached import Reached

_TARGET_START = 'custom_call_target="AsyncCollectiveStart"'
_TARGET_DONE = 'custom_call_target="AsyncCollectiveDone"'
_IDENTITY = ("channel_id", "replica_groups", "source_target_pairs", "frontend_attributes", "dimensions")


class AsyncFusions:
    """Tells the fusions that continue an asynchronous collective from those that hold one of their own."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._chains: dict[Instruction, frozenset[Instruction]] = {}

    def continues(self, fusion: Instruction) -> bool:
        """Is the collective inside this fusion counted elsewhere?"""
        body = fusion.called
        if _has(body, _TARGET_START):
            return False
        inside = _identities(body)
        is_end = _has(body, _TARGET_DONE)
        if not inside & self._started:
            if is_end:
                raise fusion.refuse(unknown("the end of an asynchronous collective whose start is not in the text"))
            return False
        if is_end or self._starts_before(fusion):
            if not inside <= self._started:
                raise fusion.refuse(unknown("a fusion continues one collective and holds another"))
            return True
        return False

    def end_of(self, start: Instruction) -> Instruction:
        """The fusion that ends the collective which this one starts. Raises `HloError` unless it is one."""
        ends = [each for each in self._ends.get(start, ()) if each.computation is start.computation]
        if len(ends) != 1:
            raise start.refuse(unknown(f"an asynchronous collective with {len(ends)} ends; expected one"))
        return ends[0]

    def starts(self, fusion: Instruction) -> bool:
        """Does this fusion start an asynchronous collective?"""
        return _has(fusion.called, _TARGET_START)

    @cached_property
    def _started(self) -> set[tuple[str, ...]]:
        """The collectives that a fusion starts."""
        bodies = self._module.computations.values()
        return {identity for body in bodies if _has(body, _TARGET_START) for identity in _identities(body)}

    @cached_property
    def _ends(self) -> dict[Instruction, list[Instruction]]:
        """The fusions that end the collective that each starts."""
        found: dict[Instruction, list[Instruction]] = {}
        for fusion in self._module.instructions:
            if fusion.opcode == "fusion" and _has(fusion.called, _TARGET_DONE):
                for start in self._starts_before(fusion):
                    if _identities(start.called) & _identities(fusion.called):
                        found.setdefault(start, []).append(fusion)
        return found

    def _starts_before(self, fusion: Instruction) -> frozenset[Instruction]:
        """The fusions that start the collectives whose chains this one takes operands from."""
        return frozenset[Instruction]().union(*map(self._chained, fusion.operands))

    def _chained(self, value: Instruction) -> frozenset[Instruction]:
        """Where the chains start that this value comes out of, through what loops carry."""
        while before := Reached(value).carried:
            value = before.instruction
        fusion = value.operand(0) if value.opcode == "get-tuple-element" else value
        if fusion.opcode != "fusion" or not fusion.type_text.startswith("("):
            return frozenset()
        if fusion not in self._chains:
            holds = _identities(fusion.called) & self._started
            own = frozenset({fusion}) if _has(fusion.called, _TARGET_START) else self._starts_before(fusion)
            self._chains[fusion] = own if holds else frozenset()
        return self._chains[fusion]


def _has(body: Computation, target: str) -> bool:
    return any(i.opcode == "custom-call" and target in i.text for i in body.instructions)


def _identities(body: Computation) -> set[tuple[str, ...]]:
    """What tells the collectives of a body from others."""
    return {
        (BASES[instruction.opcode], *map(instruction.attribute, _IDENTITY))
        for instruction in body.instructions
        if instruction.opcode in BASES
    }
