"""JAX's caches of compiled programs, in memory and on disk: cleared, filled, and checked for use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import jax
from jax.experimental.compilation_cache import compilation_cache

HIT, MISS = "/jax/compilation_cache/cache_hits", "/jax/compilation_cache/cache_misses"
ALWAYS: dict[str, Any] = {
    "jax_persistent_cache_min_compile_time_secs": 0.0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}
"""The settings that keep every compiled program, however quick or small."""


class CacheError(Exception):
    """A cold compilation that was not cold, or a warm one that was not warm."""


@contextmanager
def persistent_cache(folder: Path | None) -> Iterator[None]:
    """A context in which every compiled program is kept in ``folder``; none is if it is ``None``."""
    config: Any = jax.config
    wanted = ALWAYS | {"jax_compilation_cache_dir": folder and str(folder)}
    previous = {name: getattr(config, name) for name in wanted}
    try:
        change(wanted)
        yield
    finally:
        change(previous)


def change(settings: dict[str, Any]) -> None:
    """Change JAX's settings, and reset its cache: it decides only once whether to use one."""
    for name, value in settings.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


@contextmanager
def cache_events() -> Iterator[list[str]]:
    """A context whose list fills with JAX's events of its persistent cache, such as `HIT` and `MISS`."""
    seen: list[str] = []
    listeners().append(seen)
    try:
        yield seen
    finally:
        listeners().pop()


@cache
def listeners() -> list[list[str]]:
    """The lists that a listener appends to. It is registered once and stays: JAX 0.7 cannot unregister one."""
    active: list[list[str]] = []

    def listen(event: str, **_: Any) -> None:
        if event.startswith("/jax/compilation_cache/"):
            for seen in active:
                seen.append(event)

    jax.monitoring.register_event_listener(listen)
    return active


def check_cold(case: str, compiled: list[str], cached: list[str]) -> None:
    """Raises `CacheError` unless something was compiled, and nothing came from the persistent cache.

    ``compiled`` are the events of `compilations_of`, ``cached`` those of `cache_events`.
    """
    if missing := {"jaxpr_trace", "backend_compile"} - set(compiled):
        raise CacheError(f"{case}: compiled cold without {', '.join(sorted(missing))}: it was still in memory")
    if HIT in cached:
        raise CacheError(f"{case}: compiled cold, and {cached.count(HIT)} programs came from the persistent cache")


def check_warm(case: str, compiled: list[str], cached: list[str]) -> None:
    """Raises `CacheError` unless something was traced, and all programs came from the persistent cache."""
    if "jaxpr_trace" not in compiled:
        raise CacheError(f"{case}: compiled warm without jaxpr_trace: it was still in memory")
    if MISS in cached or HIT not in cached:
        raise CacheError(
            f"{case}: compiled warm with {cached.count(HIT)} hits and {cached.count(MISS)} misses of the persistent "
            f"cache, expected hits alone"
        )
