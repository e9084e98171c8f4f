"""Where compiled programs are kept between runs: a folder for each stack and its flags, in the user's cache.

JAX's keys tell programs, devices and options apart. They do not tell two builds of one version of jaxlib apart: the
folders do, by what jaxlib was installed from.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import distribution
from pathlib import Path

from meshproof.environments import cache_folder

MOST = 2 << 30
"""Bytes kept of all stacks together. All programs of the reference take 25 MB on one stack."""

SPARE = 256 << 20
"""Bytes that must be free on the disk: where less are, nothing is kept."""

ENTRY = "*/*-cache"
"""JAX's names, in the folder of a stack."""


def usual_cache() -> Path:
    """The folder in which programs are kept where nobody names one."""
    return cache_folder().parent / "programs"


def open_cache(root: Path, flags: str) -> Path:
    """The folder of the installed stack in a cache, made where there is none. Raises ``OSError`` if it cannot be used.

    ``flags`` are XLA's.
    """
    jaxlib = distribution("jaxlib")
    build = hashlib.sha256(f"{flags}\n{jaxlib.read_text('RECORD')}".encode()).hexdigest()[:12]
    folder = root / f"jaxlib-{jaxlib.version}-{build}"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        pass
    if shutil.disk_usage(folder).free < SPARE:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))
    return folder


def trim_cache(root: Path, most: int = MOST) -> None:
    """Remove the entries that were not used for longest, until the cache has at most ``most`` bytes.

    Another run may do the same at the same time.
    """
    entries = sorted(_entries(root), reverse=True)
    kept = 0
    for _, size, path in entries:
        kept += size
        if kept > most:
            with suppress(OSError):
                path.unlink()


def _entries(root: Path) -> Iterator[tuple[int, int, Path]]:
    """When each entry was last used (nanoseconds), its bytes, its path."""
    for path in root.glob(ENTRY):
        with suppress(FileNotFoundError):
            told = path.stat()
            yield told.st_mtime_ns, told.st_size, path
