"""Copies of a folder at each file operation of a save: what a kill there leaves."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any

from meshproof.measures.continuing import Continued

OPERATIONS: dict[str, tuple[str, tuple[tuple[int, int | None], ...]]] = {
    "open": ("opening", ((0, None),)),
    "os.mkdir": ("making", ((0, 2),)),
    "os.rename": ("renaming", ((0, 2), (1, 3))),
    "os.remove": ("removing", ((0, 1),)),
    "os.rmdir": ("removing", ((0, 1),)),
    "os.link": ("linking", ((1, 3),)),
    "os.symlink": ("linking", ((1, 2),)),
    "os.truncate": ("truncating", ((0, None),)),
}
"""File operations, as Python's audit hooks name them, and as messages do; and which of their arguments are paths, with
the descriptor of the folder that each is in."""


class Copies:
    """Copies of ``own``, a run's folder, in ``folder`` by their places in ``stopped``: before each file operation in it
    where it is not as before the last one, and of each file that is written one that has it half."""

    def __init__(self, own: Path, folder: Path, stopped: list[Continued], run: Continued) -> None:
        self.own, self.folder, self.stopped, self.run = own.resolve(), folder, stopped, run
        self.seen, self.one = "", Lock()
        self.begun: dict[Path, bytes] = {}

    def hear(self, event: str, args: tuple[Any, ...]) -> None:
        """An audit hook. What copying does itself, and what another thread does meanwhile, is not heard."""
        if event not in OPERATIONS or not self.one.acquire(blocking=False):
            return
        try:
            told, paths = OPERATIONS[event]
            named = (place_of(args[path], -1 if within is None else args[within]) for path, within in paths)
            if file := next((each for each in named if each and each.is_relative_to(self.own)), None):
                self.before(told, file)
                if event == "open" and is_written(*args[1:3]):
                    emptied = not file.is_file() or is_emptied(*args[1:3])
                    self.begun.setdefault(file, b"" if emptied else file.read_bytes())
        finally:
            self.one.release()

    def before(self, told: str, file: Path) -> None:
        """What a kill leaves before something is done with a file, if that is not as before the last operation."""
        self.tear()
        place = self.next()
        if (now := listed(place)) == self.seen:
            shutil.rmtree(place)
        else:
            self.seen = now
            self.keep(f"before {told} {file.relative_to(self.own)}")

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
    finally:
        copies.one.acquire()  # for good; a save that is not awaited may be in the midst of an operation
    copies.tear()


def place_of(path: Any, within: int) -> Path | None:
    """Where a file is that an operation names by a path or a descriptor, in the folder of another one (-1: in none);
    a link is where it is itself. ``None`` where the system does not tell."""
    try:
        if isinstance(path, int):
            return Path(f"/proc/self/fd/{path}").readlink()
        folder = Path(f"/proc/self/fd/{within}").readlink() if within >= 0 else ""
        whole = Path(folder, os.fsdecode(path)).absolute()
        return whole.parent.resolve() / whole.name
    except (OSError, TypeError):
        return None


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
    """The names and sizes of all files, and where links lead."""

    def kind(path: Path) -> str:
        return str(path.readlink()) if path.is_symlink() else str(path.stat().st_size if path.is_file() else "")

    return repr(sorted((str(path.relative_to(folder)), kind(path)) for path in folder.rglob("*")))
