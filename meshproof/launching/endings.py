"""How a process of a group ended, and what is told of it."""

from __future__ import annotations

import os
import signal
import subprocess
from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """Why a group did not end well: which process (none, where no single one is at fault), and what it did.

    ``details`` say where each process stood, a line each.
    """

    number: int | None
    told: str
    details: tuple[str, ...] = ()

    def __str__(self) -> str:
        """A sentence that names the process."""
        return self.told if self.number is None else f"process {self.number} {self.told}"


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
