"""A process that falls asleep where it marks its next step, and so before a collective; its heartbeats go on.

This file is also what each Python of the command runs first: it is copied, as ``sitecustomize``, into a folder of
``PYTHONPATH``, and so imports the standard library alone.
"""

from __future__ import annotations

import os
import runpy
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

FOLDER = "MESHPROOF_ASLEEP"
"""The environment variable that names the folder."""

MAY, DOES = "may", "does"
"""Files in it: process 1 is to fall asleep, and it does."""

FOR_EVER = 1e6


def prepare(folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """The environment variables by which the process 1 of a command hears that it is to fall asleep."""
    shutil.copyfile(__file__, folder / "sitecustomize.py")
    path = os.pathsep.join(filter(None, (str(folder), environment.get("PYTHONPATH"))))
    return {FOLDER: str(folder), "PYTHONPATH": path}


def falls(folder: Path, limit: float, is_over: Callable[[], bool]) -> bool:
    """Whether it falls asleep within so many seconds, now that it is to, and before all is over."""
    (folder / MAY).touch()
    until = time.monotonic() + limit
    while not (folder / DOES).exists() and time.monotonic() < until and not is_over():
        time.sleep(0.01)
    return (folder / DOES).exists()


def hear(event: str, arguments: tuple[Any, ...]) -> None:
    """An audit hook: it hears of every file that is opened or renamed, and falls asleep before that of a mark."""
    if event not in ("open", "os.rename", "os.link"):
        return
    mark = os.path.realpath(Path(os.environ.get("MESHPROOF_MARKS", os.devnull)) / "1")
    paths = (os.fsdecode(each) for each in arguments[:2] if isinstance(each, str | bytes | os.PathLike))
    if mark in map(os.path.realpath, paths):
        folder = Path(os.environ[FOLDER])
        if (folder / MAY).exists():
            (folder / DOES).touch()
            time.sleep(FOR_EVER)


if __name__ == "sitecustomize":
    if FOLDER in os.environ and os.environ.get("JAX_PROCESS_ID") == "1":
        sys.addaudithook(hear)
    here = str(Path(__file__).parent)
    sys.path[:] = [path for path in sys.path if path != here]
    if (other := PathFinder.find_spec("sitecustomize", sys.path)) and other.origin:
        runpy.run_path(other.origin, run_name="sitecustomize")
