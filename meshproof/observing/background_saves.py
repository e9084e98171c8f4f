"""What becomes of a save that goes on in the background: while training donates the state, and where the disk is full.

A full disk is a limit to the size of a file, of this process alone: half of the largest file of a whole checkpoint.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meshproof.measures.numerics import bitwise
from meshproof.measures.verdicts import Verdict
from meshproof.observing.members import origin, shown, state_and_metrics, told
from meshproof.observing.seen import Facet, Failed, NotSupported, Seen, Unseen
from meshproof.observing.state import values_of
from meshproof.observing.subject import Subject

PRINTED = (1, 2)
"""The file descriptors of a process's own output."""

WRITER = """
import os
while said := os.read(0, 1 << 16):
    os.write(1, said)
"""
"""At once: who prints may be about to die."""

PATIENCE = 1.0
"""Seconds for the last of what was printed."""

NAMES = ("the state when save_async was called", "the state restored after result()")


@dataclass(frozen=True)
class BackgroundSaves(Facet):
    """``whole`` compares a state with what is restored of it, once ``result()`` returned: it was saved while the next
    train step donated it.

    ``unsaid`` is what is wrong with a checkpoint that could not be written though ``result()`` raised no error: none
    where there was an error, or the checkpoint is whole. It comes before the other, which is saved after it.
    """

    whole: Seen[Verdict]
    unsaid: Seen[str | None]


def observe_background_saves(subject: Subject, state: Any, folder: Path, largest: int) -> tuple[BackgroundSaves, Any]:
    """The facet, and the next state. ``largest`` are the bytes of the largest file of a whole checkpoint."""
    unsaid = subject.attempt(lambda: _unsaid(subject, state, folder / "full", largest // 2), "save_async", "restore")
    if isinstance(unsaid, NotSupported):
        return BackgroundSaves.unseen(unsaid), state
    fresh = subject.attempt(lambda: _next(subject, state))  # a failed save may hold on to its arrays: none is donated
    if isinstance(fresh, Unseen):
        return BackgroundSaves(fresh, unsaid), state
    state = fresh
    saved = subject.attempt(lambda: values_of(state, subject.model))
    if isinstance(saved, Unseen):
        return BackgroundSaves(saved, unsaid), state
    begun = subject.attempt(lambda: _begin(subject, state, folder / "background"))
    if isinstance(begun, Unseen):
        return BackgroundSaves(begun, unsaid), state
    further = subject.attempt(lambda: _next(subject, state))

    def restored() -> Verdict:
        begun.result()
        held = values_of(subject.strategy.restore(folder / "background"), subject.model)
        return bitwise(saved, held, "state", NAMES)

    whole = subject.attempt(restored)
    if isinstance(further, Unseen):
        return BackgroundSaves(whole if isinstance(whole, Failed) else further, unsaid), state
    return BackgroundSaves(whole, unsaid), further


def _next(subject: Subject, state: Any) -> Any:
    return state_and_metrics(subject.strategy.train_step(state, subject.batches[0]))[0]


def _begin(subject: Subject, state: Any, folder: Path) -> Any:
    saving = subject.strategy.save_async(state, folder)
    if not hasattr(saving, "result"):
        raise TypeError(
            f"save_async returned {shown(saving)}, expected an object whose result() waits until the checkpoint is "
            f"whole, and raises where it never will be; return what Orbax's save_async returns"
        )
    return saving


def _unsaid(subject: Subject, state: Any, folder: Path, limit: int) -> str | None:
    with no_file_over(limit):
        try:
            _begin(subject, state, folder).result()
        except Exception:
            return None
    try:
        held = values_of(subject.strategy.restore(folder), subject.model)
    except Exception as error:
        return f"restore raised {told(error)} ({origin(error)})"
    verdict = bitwise(values_of(state, subject.model), held, "state", NAMES)
    return None if verdict.passed else str(verdict)


@contextmanager
def no_file_over(limit: int) -> Iterator[None]:
    """Whatever this process writes beyond so many bytes of a file fails, as on a full disk; but for what it prints,
    into a file perhaps: an error that is printed alone would be raised by that."""
    most, highest = resource.getrlimit(resource.RLIMIT_FSIZE)
    with printed_by_another():
        handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # otherwise the process is killed
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, highest))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, highest))
            signal.signal(signal.SIGXFSZ, handler)


@contextmanager
def printed_by_another() -> Iterator[None]:
    """What this process prints meanwhile goes to where its errors go, through a process that has no limit."""
    writer = subprocess.Popen([sys.executable, "-I", "-S", "-c", WRITER], stdin=subprocess.PIPE, stdout=2)
    assert writer.stdin
    kept = [os.dup(number) for number in PRINTED]
    for number in PRINTED:
        os.dup2(writer.stdin.fileno(), number)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        for number, before in zip(PRINTED, kept, strict=True):
            os.dup2(before, number)
            os.close(before)
        writer.stdin.close()
        with suppress(subprocess.TimeoutExpired):  # where what was started meanwhile prints on
            writer.wait(PATIENCE)
