"""Seconds that the devices were busy in a window, from JAX's profiler, if the backend traces devices."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jax

DEVICE = "/device:"
"""Prefixes of the planes of a trace that are devices; the CPU backend has only threads of the host."""


def device_seconds(run: Callable[[], Any]) -> float | None:
    """The busy seconds of the busiest device while ``run`` runs; ``None`` if the backend traces no device."""
    if jax.default_backend() == "cpu":
        return None
    with tempfile.TemporaryDirectory(prefix="meshproof-trace-") as folder:
        with jax.profiler.trace(folder):
            run()
        traces = sorted(Path(folder).rglob("*.xplane.pb"))
        return busiest(plane for path in traces for plane in jax.profiler.ProfileData.from_file(str(path)).planes)


def busiest(planes: Iterable[Any]) -> float | None:
    """The seconds that the busiest device was busy: the union of the events on its lines."""
    spans = [
        [(event.start_ns, event.start_ns + event.duration_ns) for line in plane.lines for event in line.events]
        for plane in planes
        if plane.name.startswith(DEVICE)
    ]
    return max((covered(found) for found in spans if found), default=0.0) / 1e9 or None


def covered(spans: list[tuple[float, float]]) -> float:
    """The length of the union of intervals."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total
