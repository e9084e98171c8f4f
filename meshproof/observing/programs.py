"""One compiled program, looked at: its collectives, its memory, and what its compilation took."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from meshproof.hlo import HloError, census
from meshproof.hlo.host_transfers import host_transfers
from meshproof.hlo.products import products
from meshproof.measures.memory import program_memory
from meshproof.observing.observation import Failed, NotSupported, Program, Seen

T = TypeVar("T")


def compile_program(function: Any, state: Any, batch: Any, mesh: Mapping[str, int]) -> Program:
    """Compile a jitted function of a state and a batch ahead of time, and read it. Raises what compiling raises."""
    start = time.perf_counter()
    compiled = function.lower(state, batch).compile()
    seconds = time.perf_counter() - start
    text = compiled.as_text()
    cost = compiled.cost_analysis() or {}
    return Program(
        collectives=_read(lambda: census(text, mesh)),
        products=_read(lambda: products(text)),
        memory=program_memory(compiled) or NotSupported("the backend gives no memory analysis"),
        flops=float(cost.get("flops", float("nan"))),
        compile_seconds=seconds,
        host_transfers=host_transfers(text),
    )


def _read(look: Callable[[], T]) -> Seen[T]:
    try:
        return look()
    except HloError as error:
        return Failed(f"the compiled program cannot be read: {error}")
