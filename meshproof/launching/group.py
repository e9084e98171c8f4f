"""A group of local processes of one command: started together, watched, and ended together.

A process that dies leaves the others in a collective that never ends; one that is stopped, or asleep, does too, and the
runtime's own heartbeats go on. So all are watched from outside: how each ended, whether a signal has stopped it, and
the steps that it marks. The first fault ends the group, and is told.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from meshproof.children import end, is_over, start, stopped_by
from meshproof.launching.marks import MARKS, Marks

ADDRESS, COUNT, NUMBER = "JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"
"""Where process 0 is, how many there are, and which of them this is: `jax.distributed.initialize` reads the first."""

STUCK_AFTER = 45.0
"""Seconds without a mark after which the process that is furthest behind is stuck, where nobody says."""

STOPPED = 2.0
"""Seconds that a process may be stopped by a signal."""

LAST_WORDS = 20
"""Lines of what a process printed that are shown of it."""


@dataclass(frozen=True)
class Fault:
    """Why a group did not end well: which process (none, where no single one is at fault), and what it did."""

    number: int | None
    told: str

    def __str__(self) -> str:
        """A sentence that names the process."""
        return self.told if self.number is None else f"process {self.number} {self.told}"


@dataclass
class Group:
    """``count`` processes of ``command`` with ``devices`` virtual CPU devices in all. To be used in a ``with``.

    What a process prints is kept in ``folder`` as ``NUMBER.log``; where ``shown``, process 0 prints as this process.
    """

    command: Sequence[str]
    count: int
    devices: int
    folder: Path
    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))
    shown: bool = False
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Raises ``ValueError`` where the devices do not divide among the processes."""
        if self.count < 1 or self.devices % self.count:
            raise ValueError(
                f"{self.devices} devices do not divide among {self.count} processes: expected a number of processes "
                f"from 1 on that divides {self.devices}"
            )
        self.marks = Marks(self.folder)
        self.stopped_since: dict[int, float] = {}

    def __enter__(self) -> Group:
        """Start every process. Raises ``OSError`` where the command cannot be started."""
        address = f"127.0.0.1:{free_port()}"
        try:
            with ExitStack() as logs:
                for number in range(self.count):
                    log: IO[bytes] | None = None
                    if not (self.shown and number == 0):
                        log = logs.enter_context(self.log(number).open("wb"))
                    variables = self.environment | {
                        ADDRESS: address,
                        COUNT: str(self.count),
                        NUMBER: str(number),
                        MARKS: str(self.folder),
                        "JAX_NUM_CPU_DEVICES": str(self.devices // self.count),
                    }
                    self.processes.append(
                        start(list(self.command), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=variables)
                    )
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """End whatever still runs."""
        self.end()

    def log(self, number: int) -> Path:
        """The file of what a process prints."""
        return self.folder / f"{number}.log"

    def watch(self, stuck_after: float = STUCK_AFTER, limit: float | None = None) -> Fault | None:
        """Wait until every process has ended; the first fault where there is one. Then the others still run.

        ``limit`` are the seconds that the whole group may take.
        """
        begun = time.monotonic()
        while True:
            now = time.monotonic()
            over = [is_over(process) for process in self.processes]
            if fault := self.dead(over) or self.stuck(over, now, stuck_after):
                return fault
            if all(over):
                return None
            if limit is not None and now - begun > limit:
                return Fault(None, f"expected every process to end within {limit:g} s, {over.count(False)} still run")
            time.sleep(0.05)

    def dead(self, over: Sequence[bool]) -> Fault | None:
        """The process that ended with an error; of several that one whom a signal killed that is no abort."""
        codes = {number: exit_code(self.processes[number]) for number, gone in enumerate(over) if gone}
        bad = {number: code for number, code in codes.items() if code}
        if not bad:
            return None
        number = min(bad, key=lambda each: (bad[each] >= 0 or bad[each] == -signal.SIGABRT, each))
        others = ", ".join(str(each) for each in bad if each != number)
        how = exit_text(self.processes[number])
        self.marks.read(self.count, time.monotonic())
        more = f"; by then process {others} had ended too" if others else ""
        return Fault(number, f"{how}; {self.marks.last(number)}{more}")

    def stuck(self, over: Sequence[bool], now: float, stuck_after: float) -> Fault | None:
        """The process that a signal has stopped, or that marks no further step though others have gone on."""
        running = [number for number, gone in enumerate(over) if not gone]
        self.marks.read(self.count, now)
        for number in running:
            if not (name := stopped_by(self.processes[number])):
                self.stopped_since.pop(number, None)
            elif now - self.stopped_since.setdefault(number, now) > STOPPED:
                return Fault(number, f"is stopped by {name}; {self.marks.last(number)}")
        late = self.marks.laggards(now, stuck_after)
        if not late or not running:
            return None
        number, *others = late
        how = "is stuck" if number in running else "has ended"
        too = f" (as do {', '.join(map(str, others))})" if others else ""
        ahead = max(self.marks.counts, key=lambda each: self.marks.counts[each])
        waited = f"more than {stuck_after:g} s ago, while process {ahead} is at {self.marks.texts[ahead]}"
        return Fault(number, f"{how}{too}: {self.marks.last(number)}, {waited}")

    def last_words(self, number: int) -> list[str]:
        """The last lines that a process printed."""
        path = self.log(number)
        return path.read_text(encoding="utf-8", errors="replace").splitlines()[-LAST_WORDS:] if path.exists() else []

    def end(self) -> None:
        """End every process, with all that it started."""
        for process in self.processes:
            end(process)


def exit_code(process: subprocess.Popen[bytes]) -> int | None:
    """The exit code of a process that is over, negative for a signal. It is not reaped, and `end` ends its group."""
    if process.returncode is None and hasattr(os, "waitid"):
        found = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if found is not None:
            return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status
    return process.poll()


def exit_text(process: subprocess.Popen[bytes]) -> str:
    """How a process that is over failed, in words; nothing where it did not."""
    code = exit_code(process)
    if not code:
        return ""
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])
