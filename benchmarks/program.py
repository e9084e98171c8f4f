"""The deterministic facts of the compiled program that is timed."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax

from meshproof.cases import Case, has_member
from meshproof.hlo import Collective, census
from meshproof.measures.memory import program_memory
from meshproof.observing.compilations import EVENTS, compilations_of

from .caches import HIT, cache_events


@dataclass(frozen=True)
class Program:
    """A function of a case, compiled ahead of time; a call of the function runs the same executable.

    ``compile_seconds`` are of tracing, lowering and compiling; ``None`` if JAX had one of them cached.
    """

    case: Case
    compiled: Any
    compile_seconds: float | None

    @cached_property
    def collectives(self) -> tuple[Collective, ...]:
        """Its census. Raises ``HloError`` if the text cannot be read."""
        return census(self.compiled.as_text(), self.case.mesh)

    @property
    def needed_bytes(self) -> int | None:
        """Bytes that it needs on each device: arguments, temporaries, and outputs that alias no argument."""
        memory = program_memory(self.compiled)
        if memory is None:
            return None
        return memory.arguments + memory.outputs - memory.aliased + memory.temporary

    @property
    def facts(self) -> dict[str, Any]:
        """Facts that must not change, per device and call: those of `moved`, memory, FLOPs. ``None`` is unknown.

        A GPU's FLOPs are: counted are those of kernels that XLA compiles itself, and tuning decides which they are.
        """
        cost = {} if jax.default_backend() == "gpu" else self.compiled.cost_analysis() or {}
        return {
            **moved(self.collectives),
            "peak_memory_bytes": self.needed_bytes,
            "flops": cost.get("flops"),
        }


def compile_program(case: Case, member: str, *arguments: Any) -> Program | None:
    """A member of the strategy, compiled for these arguments or shapes; ``None`` if it cannot be lowered."""
    function = getattr(case.strategy, member)
    if not hasattr(function, "lower"):
        return None
    with compilations_of() as events, cache_events() as cached:
        start = time.perf_counter()
        compiled = function.lower(*arguments).compile()
        seconds = time.perf_counter() - start
    return Program(case, compiled, seconds if set(events) >= EVENTS and HIT not in cached else None)


def abstract_state(case: Case) -> Any | None:
    """The shapes and shardings of a state, without making one; ``None`` if the strategy does not give them."""
    strategy: Any = case.strategy
    if not has_member(strategy, "init") or not hasattr(strategy.init, "lower"):
        return None
    shapes = strategy.init.lower(jax.random.key(0)).out_info
    known = all(getattr(leaf, "sharding", None) is not None for leaf in jax.tree.leaves(shapes))
    return shapes if known else None


def moved(collectives: Iterable[Collective]) -> dict[str, dict[str, int | None]]:
    """Totals of a census: bytes by mesh axes; tensors and executions by operation and axes."""
    named = [(entry, "×".join(entry.axes)) for entry in collectives]
    return {
        "bytes_by_axis": total((axes, entry.bytes) for entry, axes in named),
        "collectives": total((f"{entry.operation} over {axes}", entry.tensors) for entry, axes in named),
        "executions": total((f"{entry.operation} over {axes}", entry.executions) for entry, axes in named),
    }


def total(amounts: Any) -> dict[str, int | None]:
    """The sum by name; ``None`` if a part is unknown."""
    parts: dict[str, list[int | None]] = defaultdict(list)
    for name, amount in amounts:
        parts[name].append(amount)
    return {name: None if None in found else sum(filter(None, found)) for name, found in sorted(parts.items())}
