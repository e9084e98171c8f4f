"""How often each computation of a program runs in a step. ``None`` is unknown, and stays so in sums and products."""

from meshproof.hlo.loops import trip_count
from meshproof.hlo.module import Computation, Module


class Executions:
    """Executions per step, and whether they are those of a loop."""

    def __init__(self, module: Module) -> None:
        self._runs: dict[Computation, int | None] = {module.entry: 1}
        self._in_loop: dict[Computation, bool] = {}

    def of(self, computation: Computation) -> int | None:
        """How often it runs; 0 if nothing that is known runs it, ``None`` in a branch or a loop of unknown trips."""
        if computation not in self._runs:
            total: int | None = 0
            for caller in computation.callers:
                times: int | None = 1
                if caller.opcode == "while":
                    trips = trip_count(caller)
                    times = trips if trips is None or computation in caller.callees["body"] else trips + 1
                elif caller.opcode == "conditional":
                    times = None
                total = sum_of(total, product_of(self.of(caller.computation), times))
            self._runs[computation] = total
        return self._runs[computation]

    def is_in_loop(self, computation: Computation) -> bool:
        """Whether it is the body of a loop, or runs within one."""
        if computation not in self._in_loop:
            self._in_loop[computation] = any(
                caller.opcode == "while" or self.is_in_loop(caller.computation) for caller in computation.callers
            )
        return self._in_loop[computation]


def sum_of(one: int | None, other: int | None) -> int | None:
    """The sum; unknown if either is."""
    return None if one is None or other is None else one + other


def product_of(one: int | None, times: int | None) -> int | None:
    """The product; unknown if either is, unless nothing is multiplied."""
    return 0 if one == 0 else None if one is None or times is None else one * times
