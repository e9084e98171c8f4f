"""Child processes that nobody waits for without a limit.

Each leads a process group of its own, so that it ends with all that it started. Where one meets its limit, the Python
stack of where it stood is had first: SIGABRT makes faulthandler print it, whatever the process is doing, also in C
code that holds the interpreter's lock; a process that was stopped is resumed for that.
"""

from __future__ import annotations

import math
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from threading import Thread
from time import monotonic, sleep
from typing import Any, Final, NamedTuple

CASE_TIMEOUT: Final = 900.0
"""Seconds for one observation where nobody says: fifty times the longest of the book's on two busy cores. Large models
may compile for minutes."""

GRACE: Final = 10.0
"""Seconds in which a process must have printed its stack, or must be gone once it is killed."""

PRINTING = 2.0
"""Seconds in which one of many must have printed it, before the next one is told."""

OVER: Final = "ZX"
"""The states of a process that has ended and was not reaped."""

TRACEBACK: Final = ("-X", "faulthandler")
"""What Python is started with so that it prints its stack on SIGABRT."""

THREAD = re.compile(r"^(?:Current thread|Thread) 0x.*\n((?:  File .*\n?)+)", re.MULTILINE)
STARTING = re.compile(r'^  File "(<frozen |.*/meshproof/observing/(__main__|serving)\.py")')
CHECK = re.compile(r"^F\d{4} .*\bCheck failed.*$", re.MULTILINE)
"""Why XLA ends its process."""

LIBRARY = re.compile(r"/site-packages/(jax|jaxlib|flax|optax)/")


def read_seconds(text: str) -> float:
    """A time limit. Raises ``ValueError`` for what is no number above 0."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise ValueError(f"--case-timeout {text}: expected a number of seconds above 0, such as {CASE_TIMEOUT:g}")
    return seconds


def start(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
    """A process that leads a group of its own; ``options`` are those of `subprocess.Popen`."""
    return subprocess.Popen(command, start_new_session=True, **options)


class Ran(NamedTuple):
    """A process that is over: whether it ended in time, what it printed, and its exit code."""

    in_time: bool
    said: str
    code: int | None


def run(command: Sequence[str], environment: Mapping[str, str], seconds: float) -> Ran:
    """Run a process that is given nothing to read, for so many seconds at most; then it prints its stack and ends. It
    calls `end_when_alone`."""
    with tempfile.TemporaryFile("w+") as log:
        process = start([*command], stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment)
        assert process.stdin
        try:
            in_time = ended(process, seconds)
            if not in_time:
                abort(process)
                ended(process, GRACE)
        finally:
            end(process)
            process.stdin.close()
        log.seek(0)
        return Ran(in_time, log.read(), process.returncode)


def end_when_alone() -> None:
    """In a process that `run` has started: where whoever runs it is gone, killed perhaps, it ends with all that it
    started, and not when its work is done. The rest of it finds nothing to read."""
    held = os.fdopen(os.dup(0), "rb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)

    def listen() -> None:
        held.read()
        end_own_group()

    Thread(target=listen, daemon=True).start()


def end_own_group() -> None:
    """End this process and all that it started, at once."""
    with suppress(ProcessLookupError):  # where it was started by hand, and leads no group
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process and its group at once. One that a driver keeps in the kernel is left behind after `GRACE`."""
    if process.returncode is None:  # else its number may be another group's by now
        with suppress(ProcessLookupError, PermissionError):  # macOS denies what is already gone
            os.killpg(process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)


def ended(process: subprocess.Popen[bytes], patience: float = 0.0) -> bool:
    """Whether a process ends in time. Its number stays its group's, and the group what `end` ends."""
    until = monotonic() + patience
    while not is_over(process):
        if monotonic() > until:
            return False
        sleep(0.02)
    return True


def is_over(process: subprocess.Popen[bytes]) -> bool:
    """Whether a process has ended, without reaping it where the system allows that."""
    if process.returncode is None and hasattr(os, "waitid"):
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    return process.poll() is not None


def abort(process: subprocess.Popen[bytes]) -> str:
    """Have a process print its stack and end; the name of the signal that had stopped it, if one had.

    What was stopped may go on for a moment before it prints.
    """
    stopped = stopped_by(process)
    for number in (signal.SIGABRT, signal.SIGCONT):
        os.kill(process.pid, number)
    return stopped


def abort_group(process: subprocess.Popen[bytes]) -> None:
    """Have each process of a group print its stack and end, one after the other, so that no two print at once.

    The one that leads it is last, and held meanwhile: it would end the others. Where the system does not tell whose
    group is whose, all are told at once.
    """
    members = list(others_in_group(process.pid))
    if not members:
        os.killpg(process.pid, signal.SIGABRT)
        return
    os.kill(process.pid, signal.SIGSTOP)
    for number in members:
        until = monotonic() + PRINTING
        with suppress(OSError):
            for each in (signal.SIGABRT, signal.SIGCONT):
                os.kill(number, each)
            while stat(number)[0] not in OVER and monotonic() < until:
                sleep(0.02)
    abort(process)


def others_in_group(leader: int) -> Iterator[int]:
    """Who runs in a process group beside the one that leads it, as far as ``/proc`` tells."""
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):
            if (number := int(path.name)) != leader and int(stat(number)[2]) == leader:
                yield number


def stat(number: int) -> list[str]:
    """What ``/proc`` tells of a process behind its name, which may hold anything: the state first."""
    told = Path(f"/proc/{number}/stat").read_text(encoding="utf-8", errors="replace")
    return told.rpartition(")")[2].split()


def stopped_by(process: subprocess.Popen[bytes]) -> str:
    """The signal that stopped a process; empty where it runs, and where the system does not tell."""
    if not hasattr(os, "waitid"):
        return ""
    try:
        found = os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return ""
    return signal.Signals(found.si_status).name if found else ""


def lines(process: subprocess.Popen[bytes], patience: float) -> Iterator[str]:
    """What a process prints, line by line, until it is gone, also where what it started holds its output open.

    Raises ``TimeoutError`` where nothing comes for ``patience`` seconds.
    """
    assert process.stdout
    pending = b""
    with DefaultSelector() as selector:
        selector.register(process.stdout, EVENT_READ)
        until = monotonic() + patience
        while True:
            gone = is_over(process)
            if selector.select(0 if gone else min(1.0, max(0.0, until - monotonic()))):
                chunk = os.read(process.stdout.fileno(), 1 << 16)
                *whole, pending = (pending + chunk).split(b"\n")
                for line in whole:
                    yield line.decode(errors="replace")
                if chunk:
                    until = monotonic() + patience
                    continue
                gone = True
            if gone:
                break
            if monotonic() > until:
                raise TimeoutError
    if pending:
        yield pending.decode(errors="replace")


def stack(said: str) -> list[str]:
    """The stack that faulthandler printed last, innermost call first, as lines: the main thread's, then the others'.

    Left out are threads that wait for requests, and of JAX's calls all but the innermost.
    """
    printed = said.rpartition("Fatal Python error")[2]
    found: list[str] = []
    for calls in sorted(
        (calls.splitlines() for calls in THREAD.findall(printed)), key=lambda calls: not is_main(calls)
    ):
        if not calls[0].endswith(" in listen"):
            found += ["main thread:" if is_main(calls) else "another thread:", *shortened(calls)]
    return found


def last_words(said: str) -> list[str]:
    """Of a process that died of a signal what XLA found wrong, the signal, and the innermost frames; else what it said
    last."""
    _, fatal, printed = said.rpartition("Fatal Python error")
    if not fatal:
        return said.splitlines()[-10:]
    return [*CHECK.findall(said)[-1:], f"{fatal}{printed.splitlines()[0]}", *stack(said)][:20]


def is_main(calls: list[str]) -> bool:
    """Whether these are the calls of a program's main thread."""
    return calls[-1].endswith((" in _run_module_as_main", " in <module>"))


def shortened(calls: list[str], innermost: int = 3) -> Iterator[str]:
    """Calls without those that only start a program, and without those of JAX below the innermost."""
    left_out = 0
    for place, call in enumerate(calls):
        if place >= innermost and LIBRARY.search(call):
            left_out += 1
        elif not STARTING.search(call):
            if left_out:
                yield f"  … {left_out} calls of JAX"
            left_out = 0
            yield call
    if left_out:
        yield f"  … {left_out} calls of JAX"
