"""Files that are written whole or not at all, and documents with a generated part."""

from __future__ import annotations

import os
import pickle
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any


def replace_text(path: Path, text: str) -> None:
    """Write UTF-8 text so that the file is whole or untouched. Raises ``OSError`` that names it."""
    replace_bytes(path, text.encode())


def replace_bytes(path: Path, content: bytes) -> None:
    """Write a file so that it is whole or untouched. Raises ``OSError`` that names it.

    What a link points to is written, and the link stays. To a device or a pipe is written as it is.
    """
    target = path.resolve() if path.is_symlink() else path
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        if path.is_relative_to("/dev") or (path.exists() and not (path.is_file() or path.is_dir())):
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


def check_writable(path: Path) -> None:
    """Raise ``ValueError`` if a file could not be written: called before the work whose result it will hold."""
    folder = path.absolute().parent
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ValueError(
            f"{path}: no file can be written in {folder} ({error.strerror}); name a folder that exists and is writable"
        ) from error
    if path.is_dir():
        raise ValueError(f"{path}: this is a folder; name a file in it")


def insert(text: str, name: str, table: str) -> str:
    """The document with ``table`` between the two markers of ``name``. Raises ``ValueError`` if one is missing."""
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    head, found, rest = text.partition(begin)
    _, closed, tail = rest.partition(end)
    if not (found and closed):
        raise ValueError(f"the document has no {begin} … {end}: put both where the table belongs")
    return f"{head}{begin}\n{table}\n{end}{tail}"
