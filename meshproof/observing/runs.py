"""An implementation's own training loop: what it trains on, and what becomes of it once it is stopped or killed.

A process that is killed leaves its files as they are before the next file operation. So a copy of the folder at each
operation of a save is what a kill there leaves, and none needs to be killed.
"""

from __future__ import annotations

import importlib
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from meshproof.contract import TrainingRun
from meshproof.measures.continuing import Continued, Course, Trained
from meshproof.observing.members import origin
from meshproof.observing.reading import digest
from meshproof.observing.seen import Failed, NotSupported, Seen

STEPS, KILLED = 6, 4
"""Steps of a run, and the one in whose save it is killed."""

WINDOW = 2
"""Steps that are trained after a kill."""

OPERATIONS = {"open": "opening", "os.mkdir": "making", "os.rename": "renaming", "os.remove": "removing"}
"""File operations, as Python's audit hooks name them, and as messages do."""

Make = Callable[[Path], TrainingRun]


def find_run(module: ModuleType) -> Make | NotSupported:
    """The module's ``training_run``; one that is made when it is asked for may say what it lacks."""
    try:
        made: Make = module.training_run
    except AttributeError as error:
        return NotSupported(f"the implementation has no training_run(folder): {error}; see docs/adapters.md")
    return made


def observe_run(implementation: str, folder: Path) -> Seen[Course]:
    """A run that saves after every step, and copies of what is on disk: in ``folder``, one for each `Continued`, by its
    place. It leaves an audit hook behind: to be called in a process of its own."""
    make = find_run(importlib.import_module(implementation))
    if isinstance(make, NotSupported):
        return make
    steps: list[Trained] = []
    stopped: list[Continued] = []
    own = folder / "run"
    try:
        own.mkdir()
        run = make(own)
        for number in range(1, STEPS + 1):
            steps.append(trained(run))
            if number == KILLED:
                with copied_at_each_operation(own, folder, stopped, Continued(number - 1, number)):
                    run.save()
            elif number < STEPS:
                run.save()
            if number < STEPS:
                copy(own, folder / str(len(stopped)))
                stopped.append(Continued(number))
        (folder / str(len(stopped))).mkdir()
        stopped.append(Continued(0))
    except Exception as error:
        return Failed(f"step {len(steps)} of a run that was not stopped: {said(error)}")
    return Course(tuple(steps), tuple(stopped))


def observe_continued(implementation: str, folder: Path, course: Course) -> Seen[Course]:
    """The same with what each copy's run does, in a process that has not trained it before."""
    make = find_run(importlib.import_module(implementation))
    if isinstance(make, NotSupported):
        return make
    return replace(
        course,
        continued=tuple(go_on(make, folder / str(place), run) for place, run in enumerate(course.continued)),
    )


def go_on(make: Make, folder: Path, run: Continued) -> Continued:
    """What the run in a copy of a folder does."""
    try:
        resumed = make(folder)
        begin = int(resumed.step)
        until = min(STEPS, begin + WINDOW) if run.during else STEPS
        return replace(run, begin=begin, steps=tuple(trained(resumed) for _ in range(begin, until)))
    except Exception as error:
        return replace(run, refused=said(error))


def trained(run: TrainingRun) -> Trained:
    """The next step of a run."""
    batch, loss = next(run)
    return Trained(digest({name: np.asarray(field) for name, field in batch.items()}), float(loss).hex())


@contextmanager
def copied_at_each_operation(own: Path, folder: Path, stopped: list[Continued], run: Continued) -> Iterator[None]:
    """A copy of a run's folder before each file operation in it, where it is not as before the last one."""
    busy, seen = [False], [""]

    def hear(event: str, args: tuple[Any, ...]) -> None:
        if busy[0] or event not in OPERATIONS or not str(args[0]).startswith(str(own)):
            return
        busy[0] = True
        place = folder / str(len(stopped))
        copy(own, place)
        if (now := listed(place)) == seen[0]:
            shutil.rmtree(place)
        else:
            seen[0] = now
            file = Path(str(args[0])).relative_to(own)
            stopped.append(replace(run, operation=f"{OPERATIONS[event]} {file}"))
        busy[0] = False

    sys.addaudithook(hear)
    try:
        yield
    finally:
        busy[0] = True  # an audit hook stays until the process ends


def copy(source: Path, place: Path) -> None:
    """What is in a folder now: a file that vanishes meanwhile is not."""
    try:
        shutil.copytree(source, place)
    except shutil.Error as error:
        gone = [entry for entry in error.args[0] if not Path(entry[0]).exists()]
        if len(gone) < len(error.args[0]):
            raise


def listed(folder: Path) -> str:
    """The names and sizes of all files."""
    files = {path.relative_to(folder): path.stat().st_size if path.is_file() else 0 for path in folder.rglob("*")}
    return repr(sorted(files.items()))


def said(error: Exception) -> str:
    """What was raised, and where."""
    return f"{type(error).__name__}: {error} ({origin(error)})"
