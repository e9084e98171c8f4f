"""How many matrix products and convolutions a compiled program runs, and what they multiply: in how many parts it takes
a batch, and how often."""

from collections.abc import Callable
from itertools import chain

from meshproof.hlo.errors import refuse_depth
from meshproof.hlo.flops import is_product, product_flops
from meshproof.hlo.loops import trip_count
from meshproof.hlo.module import CALLERS, Computation, Instruction
from meshproof.hlo.order import check_order
from meshproof.hlo.parser import parse
from meshproof.hlo.phases import read_paths


def products(text: str, differentiated: bool = False) -> int | None:
    """Executions of ``dot``, ``convolution`` and the libraries' calls for them, in loops once for each iteration; only
    those of what is ``differentiated``, by their names, and of its derivatives: an optimizer may have others.

    None where the text does not tell how often one runs: in a loop of unknown trip count, or in one of several branches
    that do not run as many. Raises `HloError` for text that cannot be read.
    """
    return _count(text, differentiated, lambda product: 1)


def flops_of_products(text: str, differentiated: bool = False) -> int | None:
    """Their floating-point operations on one device, as `products` counts them; None too where one's shapes do not tell
    them."""
    return _count(text, differentiated, product_flops)


def _count(text: str, differentiated: bool, each: Callable[[Instruction], int | None]) -> int | None:
    module = parse(text)
    with refuse_depth():
        check_order(module)
        return _Counter(differentiated, each).count(module.entry)


class _Counter:
    def __init__(self, differentiated: bool, each: Callable[[Instruction], int | None]) -> None:
        self._differentiated = differentiated
        self._each = each
        self._counts: dict[Computation, int | None] = {}

    def count(self, computation: Computation) -> int | None:
        if computation not in self._counts:
            counts = [self._of(instruction) for instruction in computation.instructions]
            known = [count for count in counts if count is not None]
            self._counts[computation] = sum(known) if len(known) == len(counts) else None
        return self._counts[computation]

    def _of(self, instruction: Instruction) -> int | None:
        opcode = instruction.opcode
        if opcode not in CALLERS:
            counted = not self._differentiated or any("jvp(" in path for path in read_paths(instruction))
            return self._each(instruction) if counted and is_product(instruction) else 0
        if opcode == "while":
            body, trips = self.count(instruction.callees["body"][0]), trip_count(instruction)
            return 0 if body == 0 else None if body is None or trips is None else body * trips
        counts = {self.count(callee) for callee in chain.from_iterable(instruction.callees.values())}
        return counts.pop() if len(counts) == 1 else None
