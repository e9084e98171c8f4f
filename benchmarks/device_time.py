"""What the devices did in a window, from JAX's profiler, if the backend traces devices."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

DEVICE = "/device:"
"""Prefixes of the planes of a trace that are devices; the CPU backend has only threads of the host."""

AROUND = frozenset({"Steps", "XLA Modules", "XLA TraceMe", "Framework Ops", "Framework Name Scope", "Source code"})
"""Lines of a device whose events stand for several operations, with the time between them."""

MOVES = re.compile(
    r"%?(?:ragged-)?(?:all-reduce|all-gather|reduce-scatter|all-to-all|collective-(?:permute|broadcast)|send|recv)"
    r"|.*nccl",
    re.IGNORECASE,
)
"""Names of events that are communication: XLA's operations, NVIDIA's kernels. One inside a fusion has the fusion's."""

Span = tuple[float, float]


@dataclass(frozen=True)
class Activity:
    """Seconds of the busiest device in a window: ``busy``, and from its first event to its last.

    ``moving`` are those in which it communicates, ``waiting`` those of them in which it computes nothing.
    """

    busy: float
    whole: float
    moving: float
    waiting: float

    @property
    def shares(self) -> dict[str, float]:
        """Parts of the window: of communication, of communication alone, and of neither that nor computation."""
        return {
            "communication": self.moving / self.whole,
            "exposed_communication": self.waiting / self.whole,
            "idle": 1 - self.busy / self.whole,
        }


def activity(run: Callable[[], Any], kept: Path | None = None) -> Activity | None:
    """What the busiest device does while ``run`` runs; ``None`` if the backend traces no device.

    The trace is kept in a folder, if one is named: then it is taken in any case.
    """
    if kept is None and jax.default_backend() == "cpu":
        return None
    with ExitStack() as stack:
        folder = kept or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="meshproof-trace-")))
        before = {*folder.rglob("*.xplane.pb")}
        with jax.profiler.trace(str(folder)):
            run()
        traces = sorted({*folder.rglob("*.xplane.pb")} - before)
        return busiest(plane for path in traces for plane in jax.profiler.ProfileData.from_file(str(path)).planes)


def busiest(planes: Iterable[Any]) -> Activity | None:
    """The activity of the device that was busy for longest: of unions of the events on its lines."""
    found = [seen for plane in planes if plane.name.startswith(DEVICE) if (seen := activity_of(plane))]
    return max(found, key=lambda seen: seen.busy, default=None)


def activity_of(plane: Any) -> Activity | None:
    """That of one device; ``None`` if it has no event."""
    events = [event for line in plane.lines if line.name not in AROUND for event in line.events]
    computed, moved = (
        [span(event) for event in events if bool(MOVES.match(event.name)) is moves] for moves in (False, True)
    )
    every = computed + moved
    if not (busy := covered(every)):
        return None
    whole = max(end for _, end in every) - min(start for start, _ in every)
    return Activity(*(size / 1e9 for size in (busy, whole, covered(moved), busy - covered(computed))))


def span(event: Any) -> Span:
    """From when to when, in nanoseconds."""
    return event.start_ns, event.start_ns + event.duration_ns


def covered(spans: list[Span]) -> float:
    """The length of the union of intervals."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total
