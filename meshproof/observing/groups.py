"""Cases observed by a group of processes, within a time limit: started once for many cases, and watched."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import cast
from urllib.parse import quote

from filelock import FileLock

from meshproof.children import TRACEBACK
from meshproof.contract import Step
from meshproof.files import replace_pickle
from meshproof.launching.group import Group
from meshproof.observing.process import Settings
from meshproof.observing.seen import Failed, NotExercised, Seen

STUCK_AFTER = 120.0
"""Seconds that a process may lag: all trace and compile the same programs at the same time."""


def observe_over_processes(
    settings: Settings, processes: int, name: str, names: Sequence[str]
) -> Seen[tuple[Step, ...]] | NotExercised:
    """The steps of the case ``name`` over so many processes; those of ``names`` are observed along with it.

    One that ends its process takes the cases after it along: each of those starts a group again when it is asked for.
    """
    if settings.devices % processes:
        return NotExercised(f"{settings.devices} devices do not divide among {processes} processes; --devices 8 does")
    folder = Path(settings.directory) / f"processes-{processes}"
    folder.mkdir(exist_ok=True)
    answer = folder / f"{quote(name, safe='')}.pickle"
    limit = settings.case_timeout
    with FileLock(f"{folder}.lock", timeout=2 * limit * max(1, len(names))):
        if not answer.exists():
            missing = [each for each in names if not (folder / f"{quote(each, safe='')}.pickle").exists()]
            run(settings, processes, folder, list(dict.fromkeys([name, *missing])))
        return cast("Seen[tuple[Step, ...]]", pickle.loads(answer.read_bytes()))


def run(settings: Settings, processes: int, folder: Path, names: Sequence[str]) -> None:
    """Observe these cases; where the group ends before it is through, the first case without an answer has failed."""
    for each in folder.iterdir():
        if each.suffix != ".pickle":  # logs and marks of an earlier group
            each.unlink()
    command = [sys.executable, *TRACEBACK, "-m", "meshproof.observing.together"]
    command += [settings.implementation, str(folder), *names]
    with Group(command, processes, settings.devices, folder, settings.environment("cpu")) as group:
        fault = group.watch(STUCK_AFTER, settings.case_timeout * len(names))
        if fault is None:
            return
        words = group.last_words(fault.number or 0)
    for name in names:
        path = folder / f"{quote(name, safe='')}.pickle"
        if not path.exists():
            replace_pickle(path, Failed("\n".join([f"over {processes} processes: {fault}; its last words:", *words])))
            return
