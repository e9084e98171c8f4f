"""A group of local processes of one command: started together, watched, and ended together.

A process that dies leaves the others in a collective that never ends; one that is stopped, or asleep, does too, and the
runtime's own heartbeats go on; one that raised waits for them at exit. So all are watched from outside: how each
ended, whether its program is over, whether a signal has stopped it, and the steps that it marks. The first fault ends
the group, and is told.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from meshproof.children import end, ended, start
from meshproof.launching import departures
from meshproof.launching.activity import has_members
from meshproof.launching.endings import Fault, exit_code, exit_text
from meshproof.launching.guard import Guard
from meshproof.launching.marks import MARKS
from meshproof.launching.watch import Watch

ADDRESS, COUNT, NUMBER = "JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"
"""Where process 0 is, how many there are, and which of them this is: `jax.distributed.initialize` reads the first."""

STUCK_AFTER = 45.0
"""Seconds without a mark after which the process that is furthest behind is stuck, where nobody says."""

SHELLS = ("sh", "bash", "dash", "zsh", "ksh", "fish")

ASKED = (0, -signal.SIGTERM, 128 + signal.SIGTERM)
"""The exit codes of what ends because it was asked to."""

LAST_WORDS = 20
"""Lines of what a process printed that are shown of it."""


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
        self.last = ExitStack()

    def __enter__(self) -> Group:
        """Start every process. Raises ``OSError`` where the command cannot be started."""
        address = f"127.0.0.1:{free_port()}"
        departures.forget(self.folder, self.count)
        try:
            first = Path(
                self.last.enter_context(tempfile.TemporaryDirectory(prefix="meshproof-", ignore_cleanup_errors=True))
            )
            departures.prepare(first)
            guard = Guard()
            self.last.callback(guard.leave)
            with ExitStack() as logs:
                for number in range(self.count):
                    log: IO[bytes] | None = None
                    if not (self.shown and number == 0):
                        log = logs.enter_context(self.log(number).open("wb"))
                    variables = departures.variables(self.environment, first) | {
                        ADDRESS: address,
                        COUNT: str(self.count),
                        NUMBER: str(number),
                        MARKS: str(self.folder),
                        "JAX_NUM_CPU_DEVICES": str(self.devices // self.count),
                    }
                    self.processes.append(
                        start(list(self.command), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=variables)
                    )
                    guard.add(self.processes[-1].pid)
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

    def watch(
        self, stuck_after: float = STUCK_AFTER, limit: float | None = None, notice: Callable[[str], None] | None = None
    ) -> Fault | None:
        """Wait until every process has ended; the first fault where there is one. Then the others may still run.

        ``limit`` are the seconds that the whole group may take. ``notice`` is told where all stand, once they have
        marked nothing for ``stuck_after`` seconds, and again each time that twice as many have passed.
        """
        return Watch(self.processes, self.folder).watch(stuck_after, limit, notice)

    def ask_to_end(self, patience: float) -> dict[int, str]:
        """Send SIGTERM to every process, and wait until they have ended, for so many seconds at most. How those ended,
        by number, that did otherwise than asked.

        What a process started is its own to end: a pool that loads data is still needed. A shell passes nothing on, so
        that all that it runs is sent it.
        """
        shell = Path(self.command[0]).name in SHELLS
        send = os.killpg if shell else os.kill
        for process in self.processes:
            with suppress(ProcessLookupError, PermissionError):  # macOS denies what is already gone
                send(process.pid, signal.SIGTERM)
        until = time.monotonic() + patience
        late = {}
        for number, process in enumerate(self.processes):
            over = ended(process, max(0.0, until - time.monotonic()))
            while shell and over and has_members(process.pid):  # a shell does not wait for what it runs
                over = time.monotonic() < until
                time.sleep(0.05)
            if not over:
                late[number] = (
                    f"process {number} has not ended {patience:g} s after it, and is killed: it may not have saved"
                )
        return late | {
            number: f"process {number} {exit_text(process)} after it"
            for number, process in enumerate(self.processes)
            if number not in late and exit_code(process) not in ASKED
        }

    def last_words(self, number: int) -> list[str]:
        """The last lines that a process printed."""
        path = self.log(number)
        return path.read_text(encoding="utf-8", errors="replace").splitlines()[-LAST_WORDS:] if path.exists() else []

    def end(self) -> None:
        """End every process, with all that it started."""
        for process in self.processes:
            end(process)
        self.last.close()


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])
