"""TPU's asynchronous fusions: one collective, printed in several bodies.

A collective that runs beside compute is printed once in a fusion that ends in the custom call `AsyncCollectiveStart`,
again in every fusion it runs beside, and once more in the fusion that ends in `AsyncCollectiveDone`. The first is
counted; the others continue it. A fusion continues one if it ends it, or if it holds the collective of a started chain
(same operation, channel, groups and chain) and takes an operand from that chain. The channel alone tells nothing:
shard_map gives all its collectives channel 1.
"""

from functools import cached_property

from meshproof.hlo.collectives import BASES
from meshproof.hlo.errors import unknown
from meshproof.hlo.module import Computation, Instruction, Module

_TARGET_START = 'custom_call_target="AsyncCollectiveStart"'
_TARGET_DONE = 'custom_call_target="AsyncCollectiveDone"'
_IDENTITY = ("channel_id", "replica_groups", "source_target_pairs", "frontend_attributes", "dimensions")


class AsyncFusions:
    """Tells the fusions that continue an asynchronous collective from those that hold one of their own."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._chained: dict[Instruction, bool] = {}

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
        if is_end or self._takes_from_chain(fusion):
            if not inside <= self._started:
                raise fusion.refuse(unknown("a fusion continues one collective and holds another"))
            return True
        return False

    def end_of(self, start: Instruction) -> Instruction:
        """The fusion that ends the collective which this one starts. Raises `HloError` unless it is one."""
        reached, values = {start}, [start]
        while values:
            for user, _ in values.pop().users:
                is_next = user.opcode == "get-tuple-element" or (user.opcode == "fusion" and self.continues(user))
                if is_next and user not in reached:
                    reached.add(user)
                    values.append(user)
        ends = [
            each
            for each in reached
            if each.opcode == "fusion"
            and _has(each.called, _TARGET_DONE)
            and _identities(each.called) & _identities(start.called)
        ]
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

    def _takes_from_chain(self, fusion: Instruction) -> bool:
        return any(map(self._is_chained, fusion.operands))

    def _is_chained(self, value: Instruction) -> bool:
        """Does this value come out of a fusion that starts or continues an asynchronous collective?"""
        fusion = value.operand(0) if value.opcode == "get-tuple-element" else value
        if fusion.opcode != "fusion" or not fusion.type_text.startswith("("):
            return False
        if fusion not in self._chained:
            holds = bool(_identities(fusion.called) & self._started)
            starts = _has(fusion.called, _TARGET_START)
            self._chained[fusion] = holds and (starts or self._takes_from_chain(fusion))
        return self._chained[fusion]


def _has(body: Computation, target: str) -> bool:
    return any(i.opcode == "custom-call" and target in i.text for i in body.instructions)


def _identities(body: Computation) -> set[tuple[str, ...]]:
    """What tells the collectives of a body from others."""
    return {
        (BASES[instruction.opcode], *map(instruction.attribute, _IDENTITY))
        for instruction in body.instructions
        if instruction.opcode in BASES
    }
