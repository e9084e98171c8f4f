"""TPU's asynchronous fusions: one collective, printed in several bodies.

A collective that runs beside compute is printed once in a fusion that ends in the custom call `AsyncCollectiveStart`,
again in every fusion it runs beside, and once more in the fusion that ends in `AsyncCollectiveDone`. The first is
counted; the others continue it. A fusion continues one if it ends it, or if it holds the collective of a started chain
(same operation, channel, groups and chain) and takes an operand from that chain. The channel alone tells nothing:
shard_map gives all its collectives channel 1.
"""

from meshproof.hlo.collectives import BASES
from meshproof.hlo.dataflow import Dataflow
from meshproof.hlo.errors import unknown
from meshproof.hlo.parser import Computation, Instruction

_TARGET_START = 'custom_call_target="AsyncCollectiveStart"'
_TARGET_DONE = 'custom_call_target="AsyncCollectiveDone"'
_IDENTITY = ("channel_id", "replica_groups", "source_target_pairs", "frontend_attributes", "dimensions")


class AsyncFusions:
    """Tells the fusions that continue an asynchronous collective from those that hold one of their own."""

    def __init__(self, flow: Dataflow) -> None:
        self._flow = flow
        self._started: set[tuple[str, ...]] | None = None
        self._chained: dict[tuple[str, str], bool] = {}

    def continues(self, computation: Computation, fusion: Instruction) -> bool:
        """Is the collective inside this fusion counted elsewhere?"""
        body = self._flow.callees(fusion)["calls"][0]
        if _has(body, _TARGET_START):
            return False
        inside = {_identity(instruction) for instruction in body.instructions if instruction.opcode in BASES}
        is_end = _has(body, _TARGET_DONE)
        if not inside & self._starts():
            if is_end:
                raise fusion.refuse(unknown("the end of an asynchronous collective whose start is not in the text"))
            return False
        if is_end or self._takes_from_chain(computation, fusion):
            if not inside <= self._starts():
                raise fusion.refuse(unknown("a fusion continues one collective and holds another"))
            return True
        return False

    def _starts(self) -> set[tuple[str, ...]]:
        if self._started is None:
            self._started = {
                _identity(instruction)
                for body in self._flow.module.computations.values()
                if _has(body, _TARGET_START)
                for instruction in body.instructions
                if instruction.opcode in BASES
            }
        return self._started

    def _takes_from_chain(self, computation: Computation, fusion: Instruction) -> bool:
        return any(
            self._is_chained(computation, self._flow.operand(computation, fusion, index))
            for index in range(len(fusion.operands))
        )

    def _is_chained(self, computation: Computation, at: Instruction) -> bool:
        """Does this value come out of a fusion that starts or continues an asynchronous collective?"""
        if at.opcode == "get-tuple-element":
            at = self._flow.operand(computation, at, 0)
        if at.opcode != "fusion" or not at.type_text.startswith("("):
            return False
        key = (computation.name, at.name)
        if key not in self._chained:
            body = self._flow.callees(at)["calls"][0]
            holds = any(_identity(i) in self._starts() for i in body.instructions if i.opcode in BASES)
            self._chained[key] = holds and (_has(body, _TARGET_START) or self._takes_from_chain(computation, at))
        return self._chained[key]


def _has(body: Computation, target: str) -> bool:
    return any(i.opcode == "custom-call" and target in i.text for i in body.instructions)


def _identity(instruction: Instruction) -> tuple[str, ...]:
    values = instruction.attributes
    return (BASES[instruction.opcode], *(values[name][0] if name in values else "" for name in _IDENTITY))
