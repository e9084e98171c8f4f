"""The compiled forward pass and train step: their collectives, their memory, and what their compilation took."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from meshproof.hlo import Collective, HloError, census
from meshproof.hlo.floats import Float, floats
from meshproof.hlo.host_transfers import HostMemory, host_memory, host_transfers
from meshproof.hlo.products import products
from meshproof.measures.memory import ProgramMemory, program_memory
from meshproof.observing.compilations import FROM_CACHE, compilations_of
from meshproof.observing.seen import Facet, Failed, NotSupported, Seen, no_lower
from meshproof.observing.subject import Subject

T = TypeVar("T")


@dataclass(frozen=True)
class Program(Facet):
    """One compiled function. ``flops`` and bytes are per device and call; compile time is in seconds.

    ``compile_seconds`` is ``None`` where JAX took the program from its compilation cache.
    ``products`` counts the matrix products and convolutions that a call runs; ``None`` where the text does not tell.
    ``floats`` are the types that it computes in as it was written: a compiler may widen them.
    """

    collectives: Seen[tuple[Collective, ...]]
    products: Seen[int | None]
    floats: Seen[tuple[Float, ...]]
    memory: Seen[ProgramMemory]
    flops: Seen[float]
    compile_seconds: Seen[float | None]
    host_transfers: Seen[tuple[str, ...]]
    host_memory: Seen[HostMemory]


@dataclass(frozen=True)
class Programs(Facet):
    """``loss`` and ``train_step``, as compiled for the first batch."""

    forward: Program
    step: Program


def observe_programs(subject: Subject, state: Any) -> Programs:
    """Both, compiled ahead of time; JAX shares the train step's executable with the later call."""
    return Programs(
        forward=subject.facet(Program, lambda: _compile(subject, "loss", state), "loss"),
        step=subject.facet(Program, lambda: _compile(subject, "train_step", state), "train_step"),
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
    seconds = time.perf_counter() - start
    text = compiled.as_text()
    cost = compiled.cost_analysis() or {}
    return Program(
        collectives=_read(lambda: census(text, subject.case.mesh)),
        products=_read(lambda: products(text)),
        floats=_read(lambda: floats(lowered.as_text("hlo", debug_info=True)))
        if hasattr(lowered, "as_text")
        else NotSupported(f"what {member}.lower() returns has no as_text(): hand over JAX's own"),
        memory=program_memory(compiled) or NotSupported("the backend gives no memory analysis"),
        flops=float(cost.get("flops", float("nan"))),
        compile_seconds=None if FROM_CACHE in events else seconds,
        host_transfers=host_transfers(text),
        host_memory=host_memory(text),
    )


def stage(made: Any, name: Literal["lowered", "compiled"]) -> Any:
    """JAX's own stage, also where a library has wrapped it under that name, as Equinox does."""
    return getattr(made, name, made)


def _read(look: Callable[[], T]) -> Seen[T]:
    try:
        return look()
    except HloError as error:
        return Failed(f"the compiled program cannot be read: {error}")
