"""An implementation's own training loop: what it trains on, and what becomes of it once it is stopped or killed.

A process that is killed leaves its files as they are before the next file operation, or with half of what it was
writing. So a copy of the folder at each operation of a save is what a kill there leaves, and none needs to be killed.
"""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

import numpy as np

from meshproof.contract import TrainingRun
from meshproof.measures.continuing import Continued, Course, Trained
from meshproof.observing.members import origin
from meshproof.observing.reading import digest
from meshproof.observing.seen import Failed, NotSupported, Seen
from meshproof.observing.torn_saves import copied_at_each_operation, copy


@dataclass(frozen=True)
class Life:
    """What a process does of a run: it goes on from the step ``begin``, and saves after each step up to ``end``.

    It is killed in the save of the step ``killed``, and stopped after each of ``stopped``.
    """

    begin: int
    end: int
    killed: int
    stopped: Sequence[int]


LIVES = (Life(begin=0, end=6, killed=4, stopped=range(1, 6)), Life(begin=6, end=11, killed=7, stopped=[11]))
"""A run that goes on saves anew what it has restored, and its eleventh checkpoint comes after the ninth: names that
are sorted as texts say otherwise."""

STEPS = LIVES[-1].end + 1

WINDOW = 2
"""Steps that are trained after a kill."""

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
    try:
        (folder / "run").mkdir()
        run = make(folder / "run")
        live(run, LIVES[0], folder, steps, stopped)
        with suppress(Exception):  # it may have no data for more: then it lives once
            for _ in range(LIVES[0].end, STEPS):
                steps.append(trained(run))
        (folder / str(len(stopped))).mkdir()
        stopped.append(Continued(0))
    except Exception as error:
        return Failed(f"step {len(steps)} of a run that was not stopped: {said(error)}")
    return Course(tuple(steps), tuple(stopped))


def observe_second_life(implementation: str, folder: Path, course: Course) -> Seen[Course]:
    """The run goes on where its first process ended, and copies of what that leaves are told beside those of the first.
    It too leaves a hook behind."""
    make = find_run(importlib.import_module(implementation))
    if isinstance(make, NotSupported):
        return make
    first, second = LIVES
    if len(course.steps) < STEPS:
        return course
    stopped = list(course.continued)
    steps: list[Trained] = []
    whole = Continued(first.end, ended=True)
    try:
        run = make(folder / "run")
        whole = replace(whole, begin=int(run.step))
        if whole.begin == second.begin:
            live(run, second, folder, steps, stopped)
    except Exception as error:
        whole = replace(whole, refused=said(error))
    return replace(course, continued=(*stopped, replace(whole, steps=tuple(steps))))


def live(run: TrainingRun, life: Life, folder: Path, steps: list[Trained], stopped: list[Continued]) -> None:
    """Train and save, and copy what each stop and each kill leaves."""
    for number in range(life.begin + 1, life.end + 1):
        steps.append(trained(run))
        if number == life.killed:
            with copied_at_each_operation(folder / "run", folder, stopped, Continued(number - 1, number, life.begin)):
                run.save()
        else:
            run.save()
        if number in life.stopped:
            copy(folder / "run", folder / str(len(stopped)))
            stopped.append(Continued(number, resumed=life.begin))


def observe_continued(implementation: str, folder: Path, course: Course) -> Seen[Course]:
    """The same with what each copy's run does, in a process that has not trained it before."""
    make = find_run(importlib.import_module(implementation))
    if isinstance(make, NotSupported):
        return make
    return replace(
        course,
        continued=tuple(
            run if run.ended else go_on(make, folder / str(place), folder / "run", run)
            for place, run in enumerate(course.continued)
        ),
    )


def go_on(make: Make, copied: Path, own: Path, run: Continued) -> Continued:
    """What the run does in a copy of its own folder, which gets its place: paths that were written down are right."""
    shutil.rmtree(own)
    copied.rename(own)
    try:
        resumed = make(own)
        begin = int(resumed.step)
        end = next((life.end for life in LIVES if run.after < life.end), STEPS)
        until = min(end, begin + WINDOW) if run.during else end
        return replace(run, begin=begin, ended=True, steps=tuple(trained(resumed) for _ in range(begin, until)))
    except Exception as error:
        return replace(run, ended=True, refused=said(error))


def trained(run: TrainingRun) -> Trained:
    """The next step of a run."""
    batch, loss = next(run)
    return Trained(digest({name: np.asarray(field) for name, field in batch.items()}), float(loss).hex())


def said(error: Exception) -> str:
    """What was raised, and where."""
    return f"{type(error).__name__}: {error} ({origin(error)})"
