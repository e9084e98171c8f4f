"""A disk that is full: a small tmpfs of this command's own, where one can be mounted; else a limit to a file's length.

The tmpfs is mounted in a mount namespace that this process enters before it has threads. Only it and its children see
it, and it is gone with the last of them, however they end.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Self

SIZE = 128 << 20
"""Bytes of the tmpfs: eight checkpoints of the run."""

NEWNS, NEWUSER, RECURSIVE_PRIVATE, DETACH = 0x00020000, 0x10000000, 0x4000 | 0x40000, 2
END_WITH_PARENT = 1

LIBC = ctypes.CDLL(None, use_errno=True)


class Disk:
    """The folder where runs meet a full disk; ``kind`` is ``ENOSPC of a tmpfs`` or ``RLIMIT_FSIZE``, and ``why`` says
    why it is not the first."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.ballast, self.why = folder, folder / "ballast", ""
        folder.mkdir()
        try:
            mount(folder)
        except (OSError, AttributeError) as error:  # no Linux, or none of its namespaces for this user
            self.why = str(error)
        self.kind = "RLIMIT_FSIZE" if self.why else "ENOSPC of a tmpfs"

    def fill(self, left: int) -> Callable[[], None]:
        """Leave so many bytes of it; without a tmpfs no file of the process that calls may become longer."""
        return lambda: self.limit(left) if self.why else self.load(left)

    def limit(self, left: int) -> None:
        """In this process."""
        resource.setrlimit(resource.RLIMIT_FSIZE, (left, resource.RLIM_INFINITY))

    def load(self, left: int) -> None:
        """By a file beside the runs."""
        told = os.statvfs(self.folder)
        with self.ballast.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, max(1, told.f_bavail * told.f_frsize - left))

    def empty(self) -> None:
        """Space is there again."""
        self.ballast.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Unmount it, so that its folder can be removed."""
        if not self.why:
            LIBC.umount2(bytes(self.folder), DETACH)


def mount(folder: Path) -> None:
    """Mount the tmpfs where this process and its children alone see it. Raises ``OSError``, and ``AttributeError``
    where the system has no such calls."""
    user, group = os.geteuid(), os.getegid()
    call("unshare", NEWNS if user == 0 else NEWNS | NEWUSER)
    if user != 0:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    call("mount", b"none", b"/", None, RECURSIVE_PRIVATE, None)
    call("mount", b"meshproof", bytes(folder), b"tmpfs", 0, f"size={SIZE}".encode())


def call(name: str, *arguments: int | bytes | None) -> None:
    """One of the C library's. Raises ``OSError`` with its name."""
    if getattr(LIBC, name)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def end_with_parent() -> None:
    """Of a fork: it is killed when its parent is, also while it is stopped, where the system has that."""
    if hasattr(LIBC, "prctl"):
        LIBC.prctl(END_WITH_PARENT, signal.SIGKILL)
