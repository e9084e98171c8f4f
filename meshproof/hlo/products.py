"""How many matrix products and convolutions a compiled program runs: in how many parts it takes a batch."""

import re

from meshproof.hlo.dataflow import CALLERS, Dataflow
from meshproof.hlo.loops import trip_count
from meshproof.hlo.parser import Computation, Instruction, parse

_LIBRARY = re.compile(r'custom_call_target="[^"]*(gemm|matmul|conv)', re.IGNORECASE)


def products(text: str) -> int | None:
    """Executions of ``dot``, ``convolution`` and the libraries' calls for them, in loops once for each iteration.

    None where the text does not tell how often one runs: in a loop of unknown trip count, or in one of several branches
    that do not run as many. Raises `HloError` for text that cannot be read.
    """
    module = parse(text)
    return _Counter(Dataflow(module)).count(module.entry)


class _Counter:
    def __init__(self, flow: Dataflow) -> None:
        self._flow = flow
        self._counts: dict[str, int | None] = {}

    def count(self, computation: Computation) -> int | None:
        if computation.name not in self._counts:
            counts = [self._of(computation, instruction) for instruction in computation.instructions]
            known = [count for count in counts if count is not None]
            self._counts[computation.name] = sum(known) if len(known) == len(counts) else None
        return self._counts[computation.name]

    def _of(self, computation: Computation, instruction: Instruction) -> int | None:
        opcode = instruction.opcode
        if opcode not in CALLERS:
            called = opcode == "custom-call" and _LIBRARY.search(instruction.text, instruction.operands_start)
            return 1 if opcode in ("dot", "convolution") or called else 0
        callees = self._flow.callees(instruction)
        if opcode == "while":
            body, trips = self.count(callees["body"][0]), trip_count(self._flow, computation, instruction)
            return 0 if body == 0 else None if body is None or trips is None else body * trips
        counts = {self.count(callee) for found in callees.values() for callee in found}
        return counts.pop() if len(counts) == 1 else None
