"""A program of one size: what is counted of it, and the processor's time to make it.

Seconds of two machines say little of two releases. So each is told in units of a yardstick, too: how long Python takes
to compile a fixed text, in the same process at the same time.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from time import process_time
from typing import Any

import jax

from meshproof.observing.compilations import FROM_CACHE, compilations_of
from meshproof.operations.growing import GrowingProgram

RUNS = 5
"""Of which a time is the median."""

JAXPR, LOWERED, COMPILED = (
    "equations of the jaxpr",
    "operations of the lowered program",
    "instructions of the compiled program",
)
TRACING, LOWERING, COMPILING = "seconds of tracing", "seconds of lowering", "seconds of compiling"

TEXT = "".join(f"def f{n}(x, *, y={n}):\n    return [g(x + {n}) for g in (x, y) if g.a[{n}]]\n" for n in range(240))
"""What the yardstick is made of: some 15 ms."""

SET = "xla_cpu_use_fusion_emitters"
SHIPPED = {SET: True} if f"--{SET}=false" in os.environ.get("XLA_FLAGS", "") else {}
"""Undoes what observing processes set on older versions only: instructions are compared between versions."""


@dataclass(frozen=True)
class Measured:
    """Counts, the processor's seconds, and the yardstick's, of a program of that depth and width.

    Seconds of compiling are those of one compilation; there are none where the program came from JAX's cache.
    """

    depth: int
    width: int
    counts: dict[str, int]
    seconds: dict[str, float]
    yardstick: float

    def recorded(self) -> dict[str, Any]:
        """As a report has it: seconds in units of the yardstick."""
        times = {what: time / self.yardstick for what, time in self.seconds.items()}
        return {"depth": self.depth, "width": self.width, "counts": self.counts, "times": times}


def measure(program: GrowingProgram, depth: int, width: int) -> Measured:
    """Trace and lower it some times, and compile it once."""
    with uncollected():
        runs = [stages(program, depth, width) for _ in range(RUNS)]
        traced, lowered, _ = runs[-1]
        with compilations_of() as events:
            compiling, compiled = timed(lambda: lowered.compile(SHIPPED))
    counts = equations(traced.jaxpr.jaxpr), lines(lowered.as_text()), lines(compiled.as_text() or "")
    tracing, lowering, yardstick = (median(times) for times in zip(*(times for *_, times in runs), strict=True))
    seconds = {TRACING: tracing, LOWERING: lowering} | ({} if FROM_CACHE in events else {COMPILING: compiling})
    return Measured(depth, width, dict(zip((JAXPR, LOWERED, COMPILED), counts, strict=True)), seconds, yardstick)


@contextmanager
def uncollected() -> Iterator[None]:
    """Without the collector of garbage, whose time depends on all that the process holds."""
    was = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def stages(program: GrowingProgram, depth: int, width: int) -> tuple[Any, Any, tuple[float, float, float]]:
    """The program, made anew, traced, and lowered; and the seconds of both, and of the yardstick beside them."""
    function, given = program.make(depth, width)
    tracing, traced = timed(lambda: jax.jit(function).trace(*given))
    lowering, lowered = timed(traced.lower)
    yardstick, _ = timed(lambda: compile(TEXT, "yardstick", "exec"))
    return traced, lowered, (tracing, lowering, yardstick)


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """The processor's seconds, of all threads, and the result."""
    began = process_time()
    result = work()
    return process_time() - began, result


def equations(jaxpr: Any) -> int:
    """The equations of a jaxpr and of those within it."""
    inner = (value for equation in jaxpr.eqns for value in jax.tree.leaves([*equation.params.values()]))
    bodies = (getattr(value, "jaxpr", value) for value in inner)
    return len(jaxpr.eqns) + sum(equations(body) for body in bodies if hasattr(body, "eqns"))


def lines(text: str) -> int:
    """The lines that define a value."""
    return sum(" = " in line for line in text.splitlines())
