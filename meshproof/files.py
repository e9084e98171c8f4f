"""Files that are written whole or not at all, and documents with a generated part."""

from __future__ import annotations

import os
import pickle
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

DEVICES = (Path("/dev"), Path("/dev/fd"))
"""Where a path leads to what a process has open. A file below another folder of /dev, as /dev/shm, is a file."""


def replace_text(path: Path, text: str) -> None:
    """Write UTF-8 text so that the file is whole or untouched. Raises ``OSError`` that names it."""
    replace_bytes(path, text.encode())


def replace_bytes(path: Path, content: bytes) -> None:
    """Write a file so that it is whole or untouched. Raises ``OSError`` that names it.

    What a link points to is written, and the link stays. To a device or a pipe is written as it is.
    """
    target = pointed_to(path) if path.is_symlink() else path
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        if is_stream(path):
            with path.open("ab") as device:
                device.write(content)
            return
        temporary.write_bytes(content)
        temporary.replace(target)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from error


def replace_pickle(path: Path, value: Any) -> None:
    """Write a value so that its file is never seen half-written."""
    replace_bytes(path, pickle.dumps(value, pickle.HIGHEST_PROTOCOL))


def check_writable(path: Path, option: str = "") -> None:
    """Raise ``ValueError`` if a file could not be written: called before the work whose result it will hold.

    Of a link what it points to is asked; ``option`` is what named the path.
    """
    told, folder = f"{option} {path}".strip(), (pointed_to(path) if path.is_symlink() else path.absolute()).parent
    if path.is_dir():
        raise ValueError(f"{told}: this is a folder; name a file in it")
    if is_stream(path):
        if not os.access(path, os.W_OK):
            raise ValueError(f"{told}: this device or pipe cannot be written to; name another one, or a file")
    elif problem := unfillable(folder):
        raise ValueError(
            f"{told}: no file can be written in {folder} ({problem}); name a folder that exists and is writable"
        )


def check_json(path: Path, option: str) -> None:
    """Raise ``ValueError`` if JSON would be written over a file that has something else in it, as a program."""
    if path.is_file():
        with path.open("rb") as file:
            start = file.read(64).lstrip()
        if start and not start.startswith((b"{", b"[")):
            raise ValueError(f"{option} {path}: this file is no JSON, and would be overwritten; name another")


def check_folder_writable(path: Path, option: str) -> None:
    """Raise ``ValueError`` if a folder could not be made, or be written to: called before the work.

    Nothing is left behind: a folder that is not there is made by who fills it.
    """
    there = next(folder for folder in (path.absolute(), *path.absolute().parents) if os.path.lexists(folder))
    if problem := unfillable(there):
        raise ValueError(f"{option} {path}: nothing can be written in {there} ({problem}); name a writable folder")


def check_apart(outputs: Mapping[str, Path | None], inputs: Iterable[Path] = ()) -> None:
    """Raise ``ValueError`` if an option names a file that another one writes, or that is read. Streams take several."""
    taken = dict.fromkeys(map(pointed_to, inputs), "the command reads")
    for option, path in outputs.items():
        if path is None or is_stream(path):
            continue
        if user := taken.get(pointed_to(path)):
            raise ValueError(f"{option} {path}: {user} this file, which would be overwritten; name another")
        taken[pointed_to(path)] = f"{option} writes"


def pointed_to(path: Path) -> Path:
    """Where a path leads through links; a link that leads to itself stays as it is, which ``resolve`` refuses."""
    return Path(os.path.realpath(path))


def is_stream(path: Path) -> bool:
    """Whether a path is a device or a pipe: written to, and never replaced. So is a file that stdout is sent to."""
    return path.parent in DEVICES or (path.exists() and not (path.is_file() or path.is_dir()))


def unfillable(folder: Path) -> str | None:
    """Why no file can be made in a folder, in the system's words; ``None`` if one can."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return None
    except OSError as error:
        return error.strerror


def insert(text: str, name: str, table: str) -> str:
    """The document with ``table`` between the two markers of ``name``. Raises ``ValueError`` if one is missing."""
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    head, found, rest = text.partition(begin)
    _, closed, tail = rest.partition(end)
    if not (found and closed):
        raise ValueError(f"the document has no {begin} … {end}: put both where the table belongs")
    return f"{head}{begin}\n{table}\n{end}{tail}"
