"""The compiled program that is timed: what is deterministic of it."""

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
    """A function of a case, compiled ahead of time; JAX runs the same executable where the function is called.

    ``compile_seconds`` are those of tracing, lowering and compiling; ``None`` where JAX kept one of them.
    """

    case: Case
    compiled: Any
    compile_seconds: float | None

    @cached_property
    def collectives(self) -> tuple[Collective, ...]:
        """Its census. Raises ``HloError`` for a text that cannot be accounted for."""
        return census(self.compiled.as_text(), self.case.mesh)

    @property
    def needed_bytes(self) -> int | None:
        """What it needs on each device: arguments, temporary buffers, and outputs that are no argument's."""
        memory = program_memory(self.compiled)
        if memory is None:
            return None
        return memory.arguments + memory.outputs - memory.aliased + memory.temporary

    @property
    def facts(self) -> dict[str, Any]:
        """What must not change: what `moved` counts, memory and FLOPs, per device and call. ``None`` is unknown."""
        cost = self.compiled.cost_analysis() or {}
        return {
            **moved(self.collectives),
            "peak_memory_bytes": self.needed_bytes,
            "flops": cost.get("flops"),
        }


def compile_program(case: Case, member: str, *arguments: Any) -> Program | None:
    """A member of the strategy, compiled for these arguments or their shapes; ``None`` where it cannot be lowered."""
    function = getattr(case.strategy, member)
    if not hasattr(function, "lower"):
        return None
    with compilations_of() as events, cache_events() as cached:
        start = time.perf_counter()
        compiled = function.lower(*arguments).compile()
        seconds = time.perf_counter() - start
    return Program(case, compiled, seconds if set(events) >= EVENTS and HIT not in cached else None)


def abstract_state(case: Case) -> Any | None:
    """The shapes of a state and where they lie, without a state; ``None`` where the strategy does not tell them."""
    strategy: Any = case.strategy
    if not has_member(strategy, "init") or not hasattr(strategy.init, "lower"):
        return None
    shapes = strategy.init.lower(jax.random.key(0)).out_info
    known = all(getattr(leaf, "sharding", None) is not None for leaf in jax.tree.leaves(shapes))
    return shapes if known else None


def moved(collectives: Iterable[Collective]) -> dict[str, dict[str, int | None]]:
    """What a census counts: bytes by mesh axes; tensors, and executions, by operation and axes."""
    named = [(entry, "×".join(entry.axes)) for entry in collectives]
    return {
        "bytes_by_axis": total((axes, entry.bytes) for entry, axes in named),
        "collectives": total((f"{entry.operation} over {axes}", entry.tensors) for entry, axes in named),
        "executions": total((f"{entry.operation} over {axes}", entry.executions) for entry, axes in named),
    }


def total(amounts: Any) -> dict[str, int | None]:
    """The sum by name; unknown where a part is."""
    parts: dict[str, list[int | None]] = defaultdict(list)
    for name, amount in amounts:
        parts[name].append(amount)
    return {name: None if None in found else sum(filter(None, found)) for name, found in sorted(parts.items())}
