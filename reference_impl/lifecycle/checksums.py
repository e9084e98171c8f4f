"""The sums of a checkpoint's files, beside them: Orbax keeps none of the arrays, and restores a flipped bit as it is.

They are written when the checkpoint is whole, by whoever waits for that; of several processes when each has said that
its part is: Orbax gives a checkpoint its name though one of them could not write. One without sums is restored
unchecked: nobody had waited for it, or other code wrote it.
"""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path

FILE = "checksums.json"
"""In the folder of a checkpoint."""

FORMAT = 1
"""That of what is written here; of a checkpoint that a later version wrote it is greater."""


class ChecksumError(ValueError):
    """A file of a checkpoint is missing, or is not what was written; the message names the first, and how many."""


class FormatError(RuntimeError):
    """A checkpoint of another format; the message has both."""


def finish(folder: Path, process: int, processes: int) -> bool:
    """Say that the part of this process is whole; whether all have said so, and the sums are written, by process 0.

    Raises ``OSError``.
    """
    if process:
        if not (folder / FILE).exists():
            (folder / f"{FILE}.{process}").touch()
        return (folder / FILE).exists()
    said = [folder / f"{FILE}.{other}" for other in range(1, processes)]
    if not (folder / FILE).exists():
        if not all(each.exists() for each in said):
            return False
        write(folder)
    for each in said:
        each.unlink(missing_ok=True)
    return True


def write(folder: Path) -> None:
    """Write the sums of a whole checkpoint. Raises ``OSError``, and leaves nothing half-written."""
    told = {"format": FORMAT, "crc32": {file.relative_to(folder).as_posix(): crc32(file) for file in files(folder)}}
    unfinished = folder / f"{FILE}.new.{os.getpid()}"
    try:
        unfinished.write_text(json.dumps(told), encoding="utf-8")
        unfinished.replace(folder / FILE)
    finally:
        unfinished.unlink(missing_ok=True)


def verify(folder: Path, process: int, processes: int) -> None:
    """Hold a process's share of the files to their sums. Raises `FormatError`, and `ChecksumError`."""
    if not (folder / FILE).exists():
        return
    try:
        told = json.loads((folder / FILE).read_text(encoding="utf-8"))
        if (written := told["format"]) != FORMAT:
            raise FormatError(f"its format is {written}: expected {FORMAT}; the version that wrote it reads it")
        sums = dict[str, int](told["crc32"])
    except (ValueError, TypeError, KeyError) as error:
        raise ChecksumError(f"{FILE} cannot be read: {error!r}") from error
    own = sorted(sums)[process::processes]
    if changed := [name for name in own if not (folder / name).is_file() or crc32(folder / name) != sums[name]]:
        state = "is not what was written" if (folder / changed[0]).is_file() else "is missing"
        more = f", and {len(changed) - 1} more are not as they were" if changed[1:] else ""
        raise ChecksumError(f"{changed[0]} {state}{more}")


def files(folder: Path) -> list[Path]:
    """All that a checkpoint consists of, but for its sums."""
    return sorted(file for file in folder.rglob("*") if file.is_file() and not file.name.startswith(FILE))


def crc32(file: Path) -> int:
    """That of a file's bytes, read by the mebibyte."""
    found = 0
    with file.open("rb") as content:
        while block := content.read(1 << 20):
            found = zlib.crc32(block, found)
    return found
