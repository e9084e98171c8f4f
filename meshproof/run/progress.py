"""What a run is about to do, how long that takes here, and a sign of life where nothing is judged for long."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path
from urllib.parse import unquote

COLD, WARM = 9.0, 5.0
"""Seconds of one core for a case as small as the reference's: its programs compiled here, or kept from an earlier run.

The first is of 142 cases on two cores, 8.6 on jax 0.10.2, and more on 0.12.0.1, which takes longer to compile; the
second of eleven cases on 0.12.0.1."""

OPERATION = 3.8
"""Seconds of one core for an operation, a composition of transforms or a program that grows, under all its layouts.

Some 500 for 132 of them, compiled here."""

START = 10.0
"""Seconds until the first case is under way: imports, and devices."""

EVERY = 0.25
"""Seconds between two looks, for a terminal."""

SILENCE = 60.0
"""Seconds without a verdict after which a log says what is being observed: a large program compiles for minutes. There
twenty looks are enough: each reads a directory of hundreds of files."""


def forecast(cases: int, operations: int, tests: int, workers: int, warm: bool, accelerated: bool = False) -> str:
    """What will happen, and how long that takes on this machine's cores, in a line; of accelerators that is unknown."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    seconds = START + (cases * (WARM if warm else COLD) + operations * OPERATION) / min(workers, cores)
    long = f"{round(seconds, -1):.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
    kept = f"{'programs' if warm else 'no programs'} are kept from earlier runs"
    observed = f"{cases} cases are" if cases > 1 else "1 case is"
    takes = "" if accelerated else f": about {long} for models as small as the reference's"
    return f"{observed} observed, then judged by {tests:,} tests{takes} ({workers} of {cores} cores; {kept})"


def standard_output() -> Callable[[str], object]:
    """Writes to what is standard output now, also while pytest captures what a test writes there."""
    copy = os.dup(1)
    return lambda text: os.write(copy, text.encode())


class SignOfLife:
    """Which cases are being observed, and for how long, until `stop`.

    On a terminal one line, written again and again until a test is judged; in a log a line after each `SILENCE`.
    ``directory`` is the run's: a case has a file there when it was observed, and a lock from its start on.
    """

    def __init__(self, directory: Path, cases: Collection[str], write: Callable[[str], object], terminal: bool) -> None:
        self.directory, self.cases, self.write, self.terminal = directory, cases, write, terminal
        self.started: dict[str, float] = {}
        self.heard = time.monotonic()
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def stop(self) -> None:
        """Write no more, and leave an empty line."""
        if not self.over.is_set():
            self.over.set()
            self.thread.join()
            if self.terminal:
                self.write("\r\x1b[K")

    def judged(self) -> None:
        """A test was: a terminal goes on to show tests, and a log is not silent."""
        self.heard = time.monotonic()
        if self.terminal:
            self.stop()

    def run(self) -> None:
        """Until `stop`."""
        while not self.over.wait(EVERY if self.terminal else SILENCE / 20):
            told, working = self.line()
            if self.terminal:
                self.write(f"\r\x1b[K{told}")
            elif working and time.monotonic() - self.heard > SILENCE:
                self.heard = time.monotonic()
                self.write(f"\n{told}\n")

    def line(self) -> tuple[str, bool]:
        """What is going on now, and whether a case is being observed."""
        names = {unquote(path.name) for path in self.directory.glob("*.pickle*")}
        observed = sum(f"{case}.pickle" in names for case in self.cases)
        working = [case for case in self.cases if f"{case}.pickle.lock" in names and f"{case}.pickle" not in names]
        now = time.monotonic()
        shown = ", ".join(f"{case} ({now - self.started.setdefault(case, now):.0f} s)" for case in working[:2])
        told = f"observed {observed} of {len(self.cases)} cases; {shown or 'starting the observing processes'}"
        return told, bool(working)
