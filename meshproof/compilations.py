"""What JAX traces and compiles while something runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import jax


@contextmanager
def compilations_of() -> Iterator[list[str]]:
    """What is traced and compiled within, as the names of JAX's own timing events, while it happens."""
    events: list[str] = []
    watchers().append(events)
    try:
        yield events
    finally:
        watchers().pop()


@cache
def watchers() -> list[list[str]]:
    """The lists that a listener appends to. It is registered once and for good: JAX 0.7 cannot unregister one."""
    active: list[list[str]] = []

    def listen(event: str, duration_secs: float, **_: Any) -> None:
        if event.startswith("/jax/core/compile/"):
            for events in active:
                events.append(event.rpartition("/")[2].removesuffix("_duration"))

    jax.monitoring.register_event_duration_secs_listener(listen)
    return active
