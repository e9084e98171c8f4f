"""The data iterator's part of a checkpoint: where each process goes on to read, whole on disk when the arrays are.

                      on disk                                       restored by process p of n
    the arrays        state/                                        its shards
    the iterator      data/process_0-of-2.json, one a process       that of process p, or of p mod 2 where n is not 2

Orbax writes both into one folder, under another name until both are there. An iterator that is saved apart from the
arrays is of another step wherever the run is killed between the two, and no later step fails of it.

What is saved is the place behind the batch that was trained on last. An iterator that reads ahead for itself, as
Grain's do, says so; a loop that takes the next batch while the devices are busy must ask before it takes it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, Protocol

import jax

PART = "data"
"""The folder of the iterator's part in a checkpoint."""

FILE = re.compile(r"process_(\d+)-of-(\d+)\.json")


class Resumable(Protocol):
    """A data iterator with a place that JSON can hold. Grain's are.

    Optional: ``elastic``, true where the state of one of n processes is that of all, so that any number continues.
    """

    def get_state(self) -> Any:
        """Where it continues."""

    def set_state(self, state: Any) -> None:
        """Continue there. Raises ``ValueError`` where it cannot."""


class DataError(ValueError):
    """A checkpoint whose data iterator cannot continue; the message names the file, and what to do."""


class DamagedDataError(DataError):
    """One of which a file is missing or cannot be read."""


class SavedData:
    """An iterator as Orbax saves and loads it (``StatefulCheckpointable``). Its place is that of the call which made
    this, however far it has read when the file is written.

    Raises ``TypeError`` where JSON cannot hold the place.
    """

    def __init__(self, iterator: Resumable) -> None:
        self.iterator = iterator
        state = iterator.get_state()
        try:
            self.state = json.dumps(state)
        except TypeError as error:
            raise TypeError(
                f"the state of {type(iterator).__name__} is {state!r:.80}, expected what JSON can hold: {error}"
            ) from error

    async def save(self, directory: Any) -> Awaitable[None]:
        """Write this process's file in the background."""
        return self.write(directory)

    async def write(self, directory: Any) -> None:
        """Write this process's file, once the checkpoint's folder is there."""
        folder = Path(await directory.await_creation())
        name = f"process_{jax.process_index()}-of-{jax.process_count()}.json"
        (folder / name).write_text(self.state, encoding="utf-8")

    async def load(self, directory: Any) -> Awaitable[None]:
        """Continue where the checkpoint's process did. Raises `DataError`."""
        self.resume(Path(directory))
        return done()

    def resume(self, folder: Path) -> None:
        """Continue where the part of a checkpoint in this folder says. Raises `DataError`."""
        file = file_for(folder, jax.process_index(), jax.process_count(), getattr(self.iterator, "elastic", False))
        try:
            state = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise DamagedDataError(f"{file} cannot be read, restore an earlier checkpoint: {error}") from error
        try:
            self.iterator.set_state(state)
        except (LookupError, TypeError) as error:
            raise DamagedDataError(f"{file} is no place of this data iterator: {error!r}") from error
        except ValueError as error:
            raise DataError(f"{file} is no place of this data iterator: {error}") from error


async def done() -> None:
    """Nothing is left to do in the background."""


def file_for(folder: Path, process: int, processes: int, elastic: bool) -> Path:
    """The file from which process ``process`` of ``processes`` continues.

    Raises `DataError` where they are of another number of processes and the iterator is not elastic, and as
    `DamagedDataError` where there is none or one is missing.
    """
    names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
    found = {(int(match[1]), int(match[2])) for name in names if (match := FILE.fullmatch(name))}
    saved_by = max((count for _, count in found), default=0)
    if not found:
        raise DamagedDataError(
            f"{folder / f'process_{process}-of-{processes}.json'} is missing: the checkpoint was saved without its "
            f"data iterator. Restore an earlier one that has it; or restore the state alone, and set the iterator to "
            f"the place that you know"
        )
    if missing := sorted({(number, saved_by) for number in range(saved_by)} - found):
        number, count = missing[0]
        raise DamagedDataError(
            f"{folder / f'process_{number}-of-{count}.json'} is missing, those of other processes are there: expected "
            f"one for each of {count} processes; restore an earlier checkpoint"
        )
    if saved_by != processes and not elastic:
        raise DataError(
            f"{folder} was saved by {saved_by} processes and is restored on {processes}: expected {saved_by}, or an "
            f"iterator whose state is the same on any number of them, which says so by elastic = True"
        )
    return folder / f"process_{process % saved_by}-of-{saved_by}.json"
