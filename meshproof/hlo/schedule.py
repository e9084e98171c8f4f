"""What a program computes while its collectives are under way: read from the order of its instructions.

It is a schedule, not a measurement: it says what *could* run behind a collective, not how long either takes. Scheduled
text is in the order in which a device starts things. A collective is under way from its start to its done: what stands
between them can run meanwhile. One without a start of its own is not hidden by anything, nor is one whose done follows
its start at once.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from itertools import chain

from meshproof.hlo.async_fusions import AsyncFusions
from meshproof.hlo.collectives import BASES, CONTINUATIONS, read_collective
from meshproof.hlo.errors import HloError, refuse_depth, unknown
from meshproof.hlo.executions import Executions, product_of, sum_of
from meshproof.hlo.flops import is_product, product_flops
from meshproof.hlo.loops import trip_count
from meshproof.hlo.module import CALLERS, Computation, Instruction, Module
from meshproof.hlo.order import check_order
from meshproof.hlo.parser import parse
from meshproof.hlo.tensors import carried
from meshproof.hlo.wire import best_wire_bytes, devices_of

_MOVES_NOTHING = {"parameter", "constant", "get-tuple-element", "tuple", "bitcast", "partition-id", "replica-id"}
_MOVES_NOTHING |= {"iota", "after-all", "opt-barrier", *BASES, *CONTINUATIONS, "async-start"}


@dataclass(frozen=True)
class Work:
    """What runs: products, their operations, and the bytes that all else reads and writes. ``None`` is unknown."""

    products: int | None = 0
    flops: int | None = 0
    bytes: int | None = 0

    def plus(self, other: "Work", times: int | None = 1) -> "Work":
        """With other work, so many times."""
        pairs = ((self.products, other.products), (self.flops, other.flops), (self.bytes, other.bytes))
        return Work(*(sum_of(mine, product_of(theirs, times)) for mine, theirs in pairs))


@dataclass(frozen=True)
class Flight:
    """A collective instruction, as it is written, and the ``work`` between its start and its done.

    ``wire_bytes`` are those that a device sends in one execution. ``executions`` are per step, ``None`` where the text
    does not tell. ``line`` is that of its start in the text.
    """

    operation: str
    axes: tuple[str, ...]
    phase: str
    executions: int | None
    wire_bytes: int
    is_asynchronous: bool
    work: Work
    line: int

    @property
    def is_hidden(self) -> bool:
        """Whether a product runs while it is under way. Unknown is not hidden."""
        return bool(self.work.products)


@dataclass(frozen=True)
class Overlap:
    """Bytes of a step on the wire, those with a product behind them, and the others by phase. ``None`` is unknown.

    ``synchronous`` are those of collectives that have no start of their own: no scheduler can hide them.
    """

    bytes: int | None
    hidden: int | None
    exposed: Mapping[str, int | None]
    synchronous: int | None

    @property
    def share(self) -> float | None:
        """The share of the bytes that have a product behind them; 1 if nothing moves."""
        if self.bytes is None or self.hidden is None:
            return None
        return self.hidden / self.bytes if self.bytes else 1.0


def overlap(flights: Iterable[Flight]) -> Overlap:
    """The sum over collectives."""
    hidden: int | None = 0
    synchronous: int | None = 0
    exposed: dict[str, int | None] = {}
    for flight in flights:
        moved = product_of(flight.wire_bytes, flight.executions)
        if not flight.is_asynchronous:
            synchronous = sum_of(synchronous, moved)
        if flight.is_hidden:
            hidden = sum_of(hidden, moved)
        else:
            exposed[flight.phase] = sum_of(exposed.get(flight.phase, 0), moved)
    return Overlap(reduce(sum_of, exposed.values(), hidden), hidden, exposed, synchronous)


def flights(text: str, mesh: Mapping[str, int]) -> tuple[Flight, ...]:
    """Every collective that `compiled.as_text()` prints, in the order of the text; ``mesh`` as for the census.

    Raises `HloError` for text that is not scheduled, and for a start without its one done in the same computation.
    """
    module = parse(text)
    if not module.is_scheduled:
        raise HloError("is_scheduled=true is not in the module's header: its order is not that in which it runs")
    with refuse_depth():
        check_order(module)
        return tuple(_Reader(module, mesh).flights())


class _Reader:
    def __init__(self, module: Module, mesh: Mapping[str, int]) -> None:
        self._module, self._mesh = module, mesh
        self._fusions = AsyncFusions(module)
        self._works: dict[Computation, Work] = {}
        self._executions = Executions(module)

    def flights(self) -> Iterable[Flight]:
        for instruction in self._module.instructions:
            if instruction.opcode in BASES and self._executions.of(instruction.computation) != 0:
                yield from self._flight(instruction)

    def _flight(self, collective: Instruction) -> Iterable[Flight]:
        written = read_collective(collective, self._mesh)
        caller = collective.computation.only_caller
        wrapper = caller if caller is not None and caller.opcode in ("fusion", "async-start") else None
        is_fused = wrapper is not None and wrapper.opcode == "fusion"
        if written is None or (is_fused and wrapper is not None and self._fusions.continues(wrapper)):
            return
        start = wrapper if wrapper is not None else collective
        end = self._end(start)
        is_scatter = is_fused and collective.computation.name.startswith("all-reduce-scatter")
        operation = "reduce-scatter" if is_scatter else written.operation
        devices = devices_of(written.axes, self._mesh)
        size = sum(shape.bytes for shape in written.shapes) * (devices if operation == "all-gather" else 1)
        phases = {tensor.phase for tensor in carried(written, wrapper)}
        yield Flight(
            operation=operation,
            axes=written.axes,
            phase=phases.pop() if len(phases) == 1 else "other",
            executions=self._executions.of(start.computation),
            wire_bytes=best_wire_bytes(operation, size, devices),
            is_asynchronous=end is not None,
            work=Work() if end is None else self._between(start, end),
            line=start.line,
        )

    def _end(self, start: Instruction) -> Instruction | None:
        """Where an asynchronous collective is waited for; ``None`` if it is not one."""
        if start.opcode == "fusion":
            return self._fusions.end_of(start) if self._fusions.starts(start) else None
        if not start.opcode.endswith("-start") and start.opcode != "send":
            return None
        ends = [user for user, _ in start.users if user.opcode.endswith("-done")]
        while not ends and [user.opcode for user, _ in start.users] == ["async-update"]:
            ((start, _),) = start.users
            ends = [user for user, _ in start.users if user.opcode.endswith("-done")]
        if len(ends) != 1:
            raise start.refuse(unknown(f"{start.opcode} with {len(ends)} dones in its computation; expected one"))
        return ends[0]

    def _between(self, start: Instruction, end: Instruction) -> Work:
        work = Work()
        for instruction in start.computation.instructions:
            if start.line < instruction.line < end.line:
                work = work.plus(self._of(instruction))
        return work

    def _of(self, instruction: Instruction) -> Work:
        if is_product(instruction):
            return Work(1, product_flops(instruction))
        if instruction.opcode in ("while", "call", "conditional"):
            return self._of_called(instruction)
        if instruction.opcode in _MOVES_NOTHING:
            return Work()
        arrays = [*instruction.shapes, *(shape for operand in instruction.operands for shape in operand.shapes)]
        inside = self._inside(instruction.called) if instruction.opcode in CALLERS else Work()
        return Work(inside.products, inside.flops, sum(shape.bytes for shape in arrays))

    def _of_called(self, caller: Instruction) -> Work:
        if caller.opcode == "while":
            return Work().plus(self._inside(caller.callees["body"][0]), trip_count(caller))
        first, *others = [self._inside(callee) for callee in chain.from_iterable(caller.callees.values())]
        return first if all(other == first for other in others) else Work(None, None, None)

    def _inside(self, computation: Computation) -> Work:
        if computation not in self._works:
            work = Work()
            for instruction in computation.instructions:
                work = work.plus(self._of(instruction))
            self._works[computation] = work
        return self._works[computation]
