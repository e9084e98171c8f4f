"""What becomes of two processes that train together when one is killed, stopped or asleep: who says so, and how soon.

The implementation's ``several_processes`` is the command that starts and watches them. It is started once for each harm
that the process with ``JAX_PROCESS_ID=1`` among all that it started comes to, once it has marked some steps.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Thread
from types import ModuleType
from typing import Literal, TypeAlias

from meshproof.children import end, is_over, start
from meshproof.launching.group import ADDRESS, COUNT, NUMBER
from meshproof.launching.guard import Guard
from meshproof.launching.marks import MARKS
from meshproof.observing import asleep
from meshproof.observing.seen import Failed, NotExercised, NotSupported, Seen

STARTING = 120.0
"""Seconds in which both processes must be there: they import JAX."""

MARKING = 120.0
"""Seconds more in which the process that is to be harmed must have marked its third step, or is harmed without."""

ENDING = 60.0
"""Seconds in which whoever is lost must be named, and all must have ended."""

STEPS = 3

PROC = Path("/proc")

Harm: TypeAlias = signal.Signals | Literal["sleep"]
"""What process 1 comes to: a signal, or sleep before its next mark."""


@dataclass(frozen=True)
class Lost:
    """What was seen after process 1 came to harm, in words: what the command ``said`` on both streams, its exit
    ``code`` (none where it did not end), after how many ``seconds``, the ``mark`` of process 1, ``STEP`` and its text,
    and how many of the processes were ``left``.
    """

    how: str
    said: str
    code: int | None
    seconds: float
    mark: str
    left: int

    def problems(self) -> Iterator[str]:
        """Sentences on what is not as it must be of a process that is lost, but for its last step."""
        if self.code is None:
            yield f"after {self.how}: expected all to end within {ENDING:g} s, they still ran"
        elif self.code == 0:
            yield f"after {self.how}: expected an exit code that is not 0, saw 0: as if all were well"
        if self.left and self.code is not None:
            yield f"after {self.how}: expected no process to be left, saw {self.left}"
        if not self.lines:
            [last] = self.said.splitlines()[-1:] or ["nothing"]
            yield f"after {self.how}: expected a line that names process 1, the last was: {last[:300]}"

    @property
    def lines(self) -> list[str]:
        """Those that name process 1, not as who has printed them: ``process 1: ...``."""
        return [line for line in self.said.splitlines() if re.search(r"\bprocess 1\b(?!:)", line)]

    def unplaced(self) -> Iterator[str]:
        """A sentence where the line that names process 1 does not say at which step it was."""
        if not (step := count(self.mark)):
            yield f"process 1 marked no step within {MARKING:g} s, expected it in the file 1 of the folder ${MARKS}"
        elif self.lines and not any(re.search(rf"\bstep {step}\b", line) for line in self.lines):
            said = self.lines[-1][:300]
            yield f"after {self.how} at step {step}: expected a line with both, saw: {said}"


def find_command(module: ModuleType) -> list[str] | NotSupported:
    """The implementation's, in which ``python`` is this Python."""
    command = getattr(module, "several_processes", None)
    if command is None:
        return NotSupported(
            "the implementation has no several_processes, a command that trains over two processes until it is ended; "
            "see docs/processes.md"
        )
    return [sys.executable if word == "python" else word for word in map(str, command)]


def own_paths(path: str) -> Iterator[str]:
    """The folders of a search path but for those that are this Python's: a command may start another one."""
    standard = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    packed = f"python{sys.version_info.major}{sys.version_info.minor}.zip"
    for folder in map(Path, filter(None, path.split(os.pathsep))):
        if str(folder) not in standard and folder.parent != Path(standard[0]) and folder.name != packed:
            yield str(folder)


def members_of(process: subprocess.Popen[bytes]) -> dict[int, int]:
    """The ids of the processes 0 and 1 that a command has started, once both are there."""
    until = time.monotonic() + STARTING
    while True:
        found: dict[int, int] = {}
        for pid in descendants(process.pid):
            number = variables_of(pid).get(NUMBER, "")
            if number in ("0", "1"):
                found.setdefault(int(number), pid)  # the first of each has started the others
        if len(found) == 2 or is_over(process) or time.monotonic() > until:
            return found
        time.sleep(0.05)


def descendants(ancestor: int) -> Iterator[int]:
    """Every process that this one has started, and those that these have; whoever starts comes first."""
    children: dict[int, list[int]] = {}
    for path in PROC.glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(path.parent.name))
    waiting = [ancestor]
    while waiting:
        begun = children.get(waiting.pop(0), [])
        yield from begun
        waiting += begun


def variables_of(pid: int) -> dict[str, str]:
    """The environment variables that a process was started with; none where it has gone."""
    try:
        content = (PROC / str(pid) / "environ").read_bytes().decode(errors="replace")
    except OSError:
        return {}
    return dict(each.partition("=")[::2] for each in content.split("\0"))


def marks_of(pid: int) -> Path:
    """The file in which process 1 marks its steps, which may not be there."""
    return Path(variables_of(pid).get(MARKS, os.devnull)) / "1"


def mark_in(file: Path) -> str:
    """What it has marked last."""
    try:
        return file.read_text(encoding="utf-8")
    except OSError:
        return ""


def count(mark: str) -> int:
    """The step of a mark; 0 where there is none."""
    return int(told) if (told := mark.partition(" ")[0]).isdecimal() else 0


def is_running(pid: int) -> bool:
    """Whether a process has not ended; one that nobody has waited for has."""
    try:
        return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def observe_loss(command: Sequence[str], how: Harm, environment: Mapping[str, str]) -> Seen[Lost]:
    """Start the command, harm its process 1, and see what becomes of both."""
    if not PROC.is_dir():
        return NotExercised("the processes that a command has started are found in /proc, which is not here")
    own = tempfile.TemporaryDirectory(prefix="meshproof-", ignore_cleanup_errors=True)
    with own as folder, tempfile.TemporaryFile("w+") as log:
        variables = {name: value for name, value in environment.items() if name not in (MARKS, ADDRESS, COUNT, NUMBER)}
        variables["PYTHONPATH"] = os.pathsep.join(own_paths(variables.get("PYTHONPATH", "")))
        variables |= asleep.prepare(Path(folder), variables) if how == "sleep" else {}
        try:
            guard = Guard()
            process = start(list(command), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=variables)
        except OSError as error:
            return Failed(f"several_processes: {command[0]} cannot be started: {error.strerror}")
        members: dict[int, int] = {}
        try:
            guard.add(process.pid)
            members = members_of(process)
            if len(members) < 2:
                log.seek(0)
                return Failed(
                    f"several_processes started {len(members)} processes with {NUMBER} 0 and 1 within {STARTING:g} s, "
                    f"expected both; it said: {log.read()[-600:] or 'nothing'}"
                )
            marks = marks_of(members[1])
            until = time.monotonic() + MARKING
            while count(mark := mark_in(marks)) < STEPS and time.monotonic() < until and not is_over(process):
                time.sleep(0.01)
            slept = how == "sleep" and asleep.falls(Path(folder), MARKING, partial(is_over, process))
            if is_over(process) and not slept:
                log.seek(0)
                return Failed(
                    f"several_processes ended by itself with code {process.wait()}, expected it to train until it is "
                    f"ended; the last mark of process 1 was {mark or 'none'}; it said: {log.read()[-600:] or 'nothing'}"
                )
            if how == "sleep":
                if not slept:
                    return NotExercised(
                        f"Python opened or renamed no file of a mark of process 1 within {MARKING:g} s: it never slept"
                    )
            else:
                with suppress(ProcessLookupError):  # it may have ended after its last step
                    os.kill(members[1], how)
            begun = time.monotonic()
            for pause in (0.0, 0.05):
                time.sleep(pause)
                mark = mark_in(marks) or mark  # whoever started them may have removed the folder by now
            while not is_over(process) and time.monotonic() - begun < ENDING:
                time.sleep(0.05)
            seconds, over = time.monotonic() - begun, is_over(process)
            code = process.wait() if over else None
            left = sum(is_running(pid) for pid in members.values())
        finally:
            end(process)
            guard.leave()
            for pid in members.values():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        log.seek(0)
        told = "sleep" if how == "sleep" else how.name
        return Lost(f"{told} of process 1", log.read(), code, seconds, mark, left)


class Losses:
    """What becomes of the processes of an implementation, by harm. Each is mostly waited for: all that are expected go
    on side by side from the first question on, in threads for which nobody waits who asks no more."""

    def __init__(self, module: ModuleType, environment: Mapping[str, str], expected: Iterable[Harm]) -> None:
        self.command, self.environment, self.expected = find_command(module), environment, list(expected)
        self.begun: dict[Harm, Future[Seen[Lost]]] = {}

    def of(self, how: Harm) -> Seen[Lost]:
        """Waits for it. Raises what observing it raises."""
        if isinstance(self.command, NotSupported):
            return self.command
        for each in {how, *self.expected} - self.begun.keys():
            self.begun[each] = Future()
            Thread(target=self.observe, args=(self.command, each), daemon=True).start()
        return self.begun[how].result()

    def observe(self, command: Sequence[str], how: Harm) -> None:
        """What the thread of a harm does."""
        try:
            self.begun[how].set_result(observe_loss(command, how, self.environment))
        except BaseException as error:
            self.begun[how].set_exception(error)
