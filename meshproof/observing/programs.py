"""The compiled forward pass and train step: their collectives, their memory, and what their compilation took."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import isnan
from typing import Any, Literal, TypeVar

import jax

from meshproof.hlo import Collective, HloError, census
from meshproof.hlo.constraints import Constraint, constraints_of
from meshproof.hlo.floats import Float, Product, floats, multiplied
from meshproof.hlo.host_transfers import HostMemory, host_memory, host_transfers
from meshproof.hlo.loop_copies import LoopCopy, copies_in_loops
from meshproof.hlo.narrowed import Narrowed, narrowed
from meshproof.hlo.products import flops_of_products, products
from meshproof.hlo.reducers import takes_extremes
from meshproof.hlo.schedule import Flight, flights
from meshproof.hlo.tiles import Argument, arguments
from meshproof.hlo.unordered import sums_in_any_order
from meshproof.measures.memory import ProgramMemory, program_memory
from meshproof.observing.compilations import FROM_CACHE, compilations_of
from meshproof.observing.seen import Facet, Failed, NotExercised, NotSupported, Seen, Unseen, no_lower
from meshproof.observing.subject import Subject
from meshproof.targets.flags import ORDERED, adds_in_any_order

T = TypeVar("T")
SCHEDULED_THERE = NotExercised("the schedule is looked at for targets that only compile")
NOT_SPLIT_INSIDE = NotExercised("the contract has no batch_in_step")
SHARE = 100
"""The part of the state, one of so many, below which a copy in a loop is not looked at."""


@dataclass(frozen=True)
class Compiled:
    """What a compiler made of a function. ``flops`` and bytes are per device and call.

    ``seconds`` is ``None`` where the program was taken from a cache.
    """

    text: str
    memory: ProgramMemory | None
    flops: float
    seconds: float | None


@dataclass(frozen=True)
class Program(Facet):
    """One compiled function. ``flops`` and bytes are per device and call; compile time is in seconds.

    ``compile_seconds`` is ``None`` where JAX took the program from its compilation cache.
    ``products`` counts the matrix products and convolutions that a call runs, and ``product_flops`` their operations on
    one device; ``None`` where the text does not tell. ``flops`` counts what is in a loop once.
    ``recomputes`` says whether JAX recomputes some of it in the backward pass.
    ``floats`` are the types that it computes in as it was written: a compiler may widen them; ``multiplied`` are
    its products, by the type that they multiply in. ``arguments`` are what it
    is handed on one device, with the bytes that each takes as the program lays it out. ``takes_extremes``: devices find
    a maximum or a minimum together, of which XLA:CPU drops NaN. ``unordered`` are sums that a GPU takes in another
    order each time: none elsewhere, and none where a flag of the user's forbids them.

    Only for targets that only compile: ``flights``, what could run behind each collective by the program's schedule,
    ``loop_copies``, copies in loops of arrays that take a hundredth of the state or more, and ``narrowed``, what is
    sent in more bits than are kept of it.

    Only where the contract has a ``batch_in_step``: ``constraints``, by which it splits what enters whole.
    """

    collectives: Seen[tuple[Collective, ...]]
    products: Seen[int | None]
    product_flops: Seen[int | None]
    floats: Seen[tuple[Float, ...]]
    multiplied: Seen[tuple[Product, ...]]
    memory: Seen[ProgramMemory]
    flops: Seen[float]
    compile_seconds: Seen[float | None]
    host_transfers: Seen[tuple[str, ...]]
    host_memory: Seen[HostMemory]
    arguments: Seen[tuple[Argument, ...]]
    takes_extremes: Seen[bool]
    recomputes: Seen[bool]
    unordered: Seen[tuple[str, ...]]
    flights: Seen[tuple[Flight, ...]] = SCHEDULED_THERE
    loop_copies: Seen[tuple[LoopCopy, ...]] = SCHEDULED_THERE
    narrowed: Seen[tuple[Narrowed, ...]] = SCHEDULED_THERE
    constraints: Seen[tuple[Constraint, ...]] = NOT_SPLIT_INSIDE

    @property
    def in_any_order(self) -> NotSupported | None:
        """Why two runs of it may differ in bits, if they may and nobody is to blame."""
        if isinstance(self.unordered, Unseen) or not self.unordered:
            return None
        return NotSupported(
            f"this GPU adds in another order in each run, first in {self.unordered[0]}: judge it with "
            f"XLA_FLAGS=--{ORDERED[0]}=true, under which it does not"
        )


RECOMPUTED = "rematted_computation"
"""As JAX names what a backward pass computes again, whatever library asked for it."""

BETWEEN_SLICES = NotSupported(
    "the program is that of one slice, and what leaves it is handed to the Megascale runtime, which no census counts "
    "yet: name a target of one slice to have its communication judged"
)


@dataclass(frozen=True)
class Programs(Facet):
    """``loss`` and ``train_step``, as compiled for the first batch at float32 precision of products.

    ``usual`` is the train step at the precision that nobody asked for, as people run it: seen for targets that only
    compile.
    """

    forward: Program
    step: Program
    usual: Program


def observe_programs(subject: Subject, state: Any) -> Programs:
    """Both, compiled ahead of time; JAX shares the train step's executable with the later call."""
    return Programs(
        forward=subject.facet(Program, lambda: _compile(subject, "loss", state), "loss"),
        step=subject.facet(Program, lambda: _compile(subject, "train_step", state), "train_step"),
        usual=Program.unseen(NotExercised("default precision is looked at for targets that only compile")),
    )


def _compile(subject: Subject, member: str, state: Any) -> Program | NotSupported:
    """A jitted function of a state and a batch, compiled and read. Raises what compiling raises."""
    function = getattr(subject.strategy, member)
    if not hasattr(function, "lower"):
        return no_lower(member)
    start = time.perf_counter()
    with compilations_of() as events:
        lowered = stage(function.lower(state, subject.batches[0]), "lowered")
        compiled = stage(lowered.compile(), "compiled")
    seconds = None if FROM_CACHE in events else time.perf_counter() - start
    return read_program(subject, member, lowered, told_of(compiled, seconds))


def told_of(compiled: Any, seconds: float | None) -> Compiled:
    """What JAX's compiled stage tells."""
    flops = float((compiled.cost_analysis() or {}).get("flops", float("nan")))
    return Compiled(compiled.as_text(), program_memory(compiled), flops, seconds)


def read_program(subject: Subject, member: str, lowered: Any, compiled: Compiled) -> Program:
    """What the text of a program says."""
    text = compiled.text
    kinds, multiplying = _written(member, lowered)
    return Program(
        collectives=_moved(text, lambda: census(text, subject.case.mesh)),
        products=_read(lambda: products(text)),
        product_flops=_read(lambda: flops_of_products(text)),
        floats=kinds,
        multiplied=multiplying,
        memory=compiled.memory or NotSupported("the backend gives no memory analysis"),
        flops=_counted(subject, compiled.flops),
        compile_seconds=compiled.seconds,
        host_transfers=_moved(text, lambda: host_transfers(text)),
        host_memory=_read(lambda: host_memory(text)),
        arguments=_read(lambda: arguments(text)),
        takes_extremes=_read(lambda: takes_extremes(text)),
        recomputes=RECOMPUTED in text,
        unordered=_read(lambda: sums_in_any_order(text))
        if adds_in_any_order(jax.default_backend(), os.environ)
        else (),
        constraints=constraints_of(lowered.as_text()) if subject.case.contract.batch_in_step else NOT_SPLIT_INSIDE,
    )


def _counted(subject: Subject, flops: float) -> Seen[float]:
    if jax.default_backend() == "gpu":
        return NotSupported("a GPU's compiler counts the FLOPs that it compiles itself, and tuning decides which")
    return NotSupported("the compiler counts no FLOPs") if subject.case.compiles_only and isnan(flops) else flops


def _written(member: str, lowered: Any) -> tuple[Seen[tuple[Float, ...]], Seen[tuple[Product, ...]]]:
    """The types of a program as it was written, and those of its products."""
    if not hasattr(lowered, "as_text"):
        unseen = NotSupported(f"what {member}.lower() returns has no as_text(): hand over JAX's own")
        return unseen, unseen
    text = lowered.as_text("hlo", debug_info=True)
    return _read(lambda: floats(text)), _read(lambda: multiplied(text))


def with_schedule(subject: Subject, program: Program, text: str, state_bytes: int) -> Program:
    """The same with what its schedule says; ``state_bytes`` are those of the state on a device."""
    return replace(
        program,
        flights=_moved(text, lambda: flights(text, subject.case.mesh)),
        loop_copies=_read(lambda: copies_in_loops(text, max(state_bytes // SHARE, 1))),
        narrowed=_read(lambda: narrowed(text)),
    )


def stage(made: Any, name: Literal["lowered", "compiled"]) -> Any:
    """JAX's own stage, also where a library has wrapped it under that name, as Equinox does."""
    return getattr(made, name, made)


def _moved(text: str, look: Callable[[], T]) -> Seen[T]:
    """What moves; of a program that is one slice's, and hands what leaves it to a runtime, nothing is counted."""
    return BETWEEN_SLICES if "_xla_megascale_" in text else _read(look)


def _read(look: Callable[[], T]) -> Seen[T]:
    try:
        return look()
    except HloError as error:
        return Failed(f"the compiled program cannot be read: {error}")
