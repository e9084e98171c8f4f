"""A process that ends the processes of a launcher which is killed, and so cannot end them itself.

It holds the other end of a pipe: where the launcher is gone, for whatever reason, that is at its end.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress

from meshproof.children import end, start

GUARD = """
import os, signal, sys
groups = [int(line) for line in sys.stdin]
for group in groups:
    try:
        os.killpg(group, signal.SIGKILL)
    except OSError:
        pass
"""


class Guard:
    """The process; it is told each one that the launcher starts."""

    def __init__(self) -> None:
        """Raises ``OSError`` where it cannot be started."""
        command = [sys.executable, "-I", "-S", "-c", GUARD]
        self.process = start(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def add(self, leader: int) -> None:
        """One that leads a group of its own."""
        assert self.process.stdin
        with suppress(BrokenPipeError):  # somebody has ended it
            self.process.stdin.write(f"{leader}\n".encode())
            self.process.stdin.flush()

    def leave(self) -> None:
        """All have ended, and their numbers may be others' now."""
        end(self.process)
        assert self.process.stdin
        with suppress(BrokenPipeError):
            self.process.stdin.close()
