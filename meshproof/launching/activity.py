"""Whether the processes of a group compute or wait: the processor time of each and of all that it started.

It is read in ``/proc``; where there is none, as on macOS, nothing is known.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from meshproof.children import OVER, stat

EVERY = 1.0
"""Seconds between two looks."""

WINDOW = 4
"""Looks that are kept: what is told of now is told of so many seconds."""

IDLE = 0.1
"""The part of one processor below which a process only waits. JAX's own threads take 0.01 of one."""

UNITS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


class Activity:
    """The processor time of groups of processes, by the id of the process that leads each."""

    def __init__(self) -> None:
        self.looks: deque[tuple[float, dict[int, float]]] = deque(maxlen=WINDOW)
        self.busy_at: dict[int, float] = {}

    def look(self, leaders: Iterable[int], now: float) -> None:
        """Read it again, if the last look was long ago. ``now`` is in seconds."""
        if self.looks and now - self.looks[-1][0] < EVERY:
            return
        self.looks.append((now, seconds(set(leaders))))
        for leader in self.looks[-1][1]:
            share = part(self.looks[-2], self.looks[-1], leader) if len(self.looks) > 1 else None
            if share is None or share > IDLE:
                self.busy_at[leader] = now

    def idle_for(self, leader: int, now: float) -> float:
        """The seconds since which a process only waits; 0 where that is not known."""
        return now - self.busy_at.get(leader, now)

    def told(self, leader: int) -> str:
        """What a process does, in words."""
        share = part(self.looks[0], self.looks[-1], leader) if len(self.looks) > 1 else None
        if share is None:
            return "still runs"
        return f"uses {share:.0%} of a processor" if share > IDLE else "sleeps"


def part(before: tuple[float, dict[int, float]], after: tuple[float, dict[int, float]], leader: int) -> float | None:
    """The part of one processor that was used between two looks."""
    if leader not in before[1] or leader not in after[1]:
        return None
    return (after[1][leader] - before[1][leader]) / (after[0] - before[0])


def seconds(leaders: set[int]) -> dict[int, float]:
    """Processor time of each session that these lead."""
    used: dict[int, float] = {}
    for leader, fields in sessions():
        if leader in leaders:
            used[leader] = used.get(leader, 0.0) + sum(map(int, fields[11:15])) / UNITS
    return used


def has_members(leader: int) -> bool:
    """Whether anything runs yet of the session that it leads, or led."""
    return any(session == leader and state not in OVER for session, (state, *_) in sessions())


def sessions() -> Iterator[tuple[int, list[str]]]:
    """The leader of each process's session, and what stands behind its name in ``/proc/ID/stat``."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):
            fields = stat(int(path.parent.name))
            yield int(fields[3]), fields


def is_alive(process: int) -> bool:
    """Whether a process runs, by its id: one that has ended and was not reaped does not, where there is ``/proc``."""
    try:
        if Path("/proc/self").exists():
            return stat(process)[0] not in OVER
        os.kill(process, 0)
    except OSError:
        return False
    return True
