"""Copies of a folder at each file operation of a save: what a kill there leaves."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from meshproof.measures.continuing import Continued

OPERATIONS = {"open": "opening", "os.mkdir": "making", "os.rename": "renaming", "os.remove": "removing"}
"""File operations, as Python's audit hooks name them, and as messages do."""


class Copies:
    """Copies of ``own``, a run's folder, in ``folder`` by their places in ``stopped``: before each file operation in it
    where it is not as before the last one, and of each file that is written one that has it half."""

    def __init__(self, own: Path, folder: Path, stopped: list[Continued], run: Continued) -> None:
        self.own, self.folder, self.stopped, self.run = own, folder, stopped, run
        self.busy, self.seen = False, ""
        self.begun: dict[Path, bytes] = {}

    def hear(self, event: str, args: tuple[Any, ...]) -> None:
        """An audit hook."""
        if self.busy or event not in OPERATIONS or not str(args[0]).startswith(str(self.own)):
            return
        self.busy = True
        self.tear()
        file = Path(str(args[0]))
        place = self.next()
        if (now := listed(place)) == self.seen:
            shutil.rmtree(place)
        else:
            self.seen = now
            self.keep(f"before {OPERATIONS[event]} {file.relative_to(self.own)}")
        if event == "open" and is_written(*args[1:3]):
            self.begun.setdefault(file, file.read_bytes() if file.is_file() and not is_emptied(*args[1:3]) else b"")
        self.busy = False

    def tear(self) -> None:
        """A copy for each file that was begun and has contents now: the first half of them, and then what was there."""
        for file, before in list(self.begun.items()):
            now = file.read_bytes() if file.is_file() else b""
            if now in (b"", before):
                continue
            del self.begun[file]
            half = len(now) // 2
            name = file.relative_to(self.own)
            (self.next() / name).write_bytes(now[:half] + before[half:])
            self.keep(f"with half of {name} written")

    def next(self) -> Path:
        """A copy in the next place."""
        place = self.folder / str(len(self.stopped))
        copy(self.own, place)
        return place

    def keep(self, when: str) -> None:
        """The copy in the next place is of a kill then."""
        self.stopped.append(replace(self.run, when=when))


@contextmanager
def copied_at_each_operation(own: Path, folder: Path, stopped: list[Continued], run: Continued) -> Iterator[None]:
    """What is done within is heard. An audit hook stays until the process ends; it hears nothing afterwards."""
    copies = Copies(own, folder, stopped, run)
    sys.addaudithook(copies.hear)
    try:
        yield
        copies.busy = True
        copies.tear()
    finally:
        copies.busy = True


def is_written(mode: str | None, flags: int) -> bool:
    """Whether a file is opened to be written: by a mode, as ``open`` has it, or by flags, as ``os.open``."""
    return bool(set(mode or "") & set("wax+")) or bool(flags & (os.O_WRONLY | os.O_RDWR))


def is_emptied(mode: str | None, flags: int) -> bool:
    """Whether opening it drops its contents."""
    return "w" in (mode or "") or bool(flags & os.O_TRUNC)


def copy(source: Path, place: Path) -> None:
    """What is in a folder now: a file that vanishes meanwhile is not. Links stay links."""
    try:
        shutil.copytree(source, place, symlinks=True)
    except shutil.Error as error:
        gone = [entry for entry in error.args[0] if not Path(entry[0]).exists()]
        if len(gone) < len(error.args[0]):
            raise


def listed(folder: Path) -> str:
    """The names and sizes of all files."""
    files = {path.relative_to(folder): path.stat().st_size if path.is_file() else 0 for path in folder.rglob("*")}
    return repr(sorted(files.items()))
