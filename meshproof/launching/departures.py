"""What the processes of a group tell of their own end (`at_exit`), as the launcher reads it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from meshproof.launching import at_exit

LEAVING = 5.0
"""Seconds that a process which raised may take to be over: it may still save what it has."""


@dataclass(frozen=True)
class Departure:
    """A program that is over: its process's id, when (`time.monotonic`), and the exception if nobody caught it.

    ``exited`` is what `sys.exit` was called with last, where that is an error: which the program may have caught.
    """

    process: int
    at: float
    raised: str
    exited: str

    def __str__(self) -> str:
        """How it ended, in words."""
        if self.raised:
            return f"raised {self.raised}"
        return f"called sys.exit({self.exited})" if self.exited else "came to the end of its program"


def prepare(folder: Path) -> None:
    """Put what the processes run first into an empty folder."""
    shutil.copyfile(at_exit.__file__, folder / "sitecustomize.py")


def variables(environment: Mapping[str, str], folder: Path) -> dict[str, str]:
    """An environment in which Python finds that first; a process started there is outermost."""
    path = os.pathsep.join(filter(None, [str(folder), environment.get("PYTHONPATH")]))
    kept = {name: value for name, value in environment.items() if name != at_exit.OUTERMOST}
    return kept | {"PYTHONPATH": path}


def read(folder: Path, number: int) -> Departure | None:
    """What a process told; nothing where it has not, or was no Python."""
    path = folder / f"{number}.left"
    return Departure(**json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None


def read_stack(folder: Path, number: int) -> tuple[int, str]:
    """The id of the process whose stack a signal prints, and what was printed; 0 where there is none."""
    path = folder / f"{number}.stack"
    told = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    process, _, printed = told.partition("\n")
    return int(process or 0), printed


def forget(folder: Path, count: int) -> None:
    """Remove what an earlier group told in this folder."""
    for number in range(count):
        for kind in ("left", "stack"):
            (folder / f"{number}.{kind}").unlink(missing_ok=True)
