"""What JAX traces and compiles while something runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import jax

EVENTS = {"jaxpr_trace", "jaxpr_to_mlir_module", "backend_compile"}
"""What a function that JAX has never seen must cause; a counter that misses one of them would read zero for ever."""


FROM_CACHE = "cache_hits"
"""What is reported where a program is taken from JAX's persistent compilation cache."""

COMPILED = {"backend_compile", FROM_CACHE}
"""What is reported of a program that is made, or taken from there."""


@contextmanager
def compilations_of() -> Iterator[list[str]]:
    """What is traced, compiled or taken from the cache within, as the names of JAX's own events, while it happens."""
    events: list[str] = []
    watchers().append(events)
    try:
        yield events
    finally:
        watchers().pop()


@cache
def watchers() -> list[list[str]]:
    """The lists that a listener appends to. It is registered once and for good: JAX 0.7 cannot unregister one.

    Raises ``RuntimeError`` where this JAX does not report its compilations under the known names.
    """
    probe: list[str] = []
    active = [probe]

    def listen(event: str, duration_secs: float, **_: Any) -> None:
        if event.startswith("/jax/core/compile/"):
            for events in active:
                events.append(event.rpartition("/")[2].removesuffix("_duration"))

    def listen_to_cache(event: str, **_: Any) -> None:
        if event == f"/jax/compilation_cache/{FROM_CACHE}":
            for events in active:
                events.append(FROM_CACHE)

    jax.monitoring.register_event_duration_secs_listener(listen)
    jax.monitoring.register_event_listener(listen_to_cache)
    jax.jit(lambda x: x + 1)(0.0)
    if missing := EVENTS - set(active.pop()):
        raise RuntimeError(
            f"compiling a new function reported no {', '.join(sorted(missing))} (seen: {probe}): jax {jax.__version__} "
            f"names its events otherwise, and no compilation can be counted; report it with this line"
        )
    return active
