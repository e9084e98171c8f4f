"""A folder of a run: what the run is, in ``run.json``, and its checkpoints by step, as ``step_000123``."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import jax

from reference_impl.forms.base import Form
from reference_impl.lifecycle import checksums

if TYPE_CHECKING:
    from reference_impl.lifecycle.checkpointing import Saving
    from reference_impl.lifecycle.data_loading import ShuffledBatches

CHECKPOINT = re.compile(r"step_(\d{6,})")

CLAIMED: set[Path] = set()
"""The folders that this process has locked: two runs that begin at once in one would be none that can be resumed."""


class SaveError(RuntimeError):
    """A checkpoint of the run that was not saved; the message names its step, and the last that was."""


@dataclass
class RunFolder:
    """Where one run keeps its checkpoints, of which one at a time is saved in the background.

    As a context it waits for that one at its end, so that none is lost with the process. A save that failed raises
    `SaveError` wherever the run next looks: at a step, at the next save, at the end.
    """

    path: Path
    keep: int
    running: tuple[int, Saving] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.wait()

    @classmethod
    def open(cls, path: Path | None, keep: int, settings: dict[str, Any], resume: bool) -> Self | None:
        """A new run's folder, or that of a run of the same settings to be resumed; ``None`` without a path. Of its
        checkpoints the last ``keep`` stay.

        Raises ``ValueError`` where there is nothing to resume, the settings differ, another run uses the folder, or it
        cannot be made, read and written; ``FileExistsError`` where a new run would meet the checkpoints of another.
        """
        if path is None:
            if resume:
                raise ValueError("--resume needs --checkpoints: the folder of the run to continue")
            return None
        folder = cls(path.absolute(), keep)
        with usable("--checkpoints", path):
            if not resume:
                path.mkdir(parents=True, exist_ok=True)
            steps = folder.steps()
            if steps or not resume:
                tempfile.TemporaryFile(dir=path).close()
                if jax.process_index() == 0:
                    claim(path.absolute())
        if resume:
            if not steps:
                torn = [unfinished.name for _, unfinished in folder.named()]
                more = f"; of {', '.join(torn)} not every process has written its part" if torn else ""
                raise ValueError(
                    f"{path} has no checkpoint to resume: expected a folder step_000123 or the like in it{more}"
                )
            folder.check(settings)
        elif folder.named():
            raise FileExistsError(f"{path} has checkpoints already: pass --resume, or name a new folder")
        elif jax.process_index() == 0:
            write = path / "run.json.new"
            write.write_text(json.dumps(settings), encoding="utf-8")
            write.replace(path / "run.json")
        return folder

    def check(self, settings: dict[str, Any]) -> None:
        """Raises ``ValueError`` where the run was started with other settings (it would continue as another), or
        where ``run.json`` does not tell."""
        file = self.path / "run.json"
        mend = f"it says what the run is; if its checkpoints are of this run, write there {json.dumps(settings)}"
        try:
            started = json.loads(file.read_text(encoding="utf-8"))
        except OSError as error:
            raise ValueError(f"{file} cannot be read: {error.strerror}; {mend}") from error
        except ValueError as error:
            raise ValueError(f"{file} cannot be read as JSON: {error}; {mend}") from error
        if not isinstance(started, dict) or not started.keys() >= settings.keys():
            raise ValueError(f"{file}: expected {', '.join(settings)}, saw {started!r:.80}; {mend}")
        for name, value in settings.items():
            if started[name] != value:
                raise ValueError(f"{self.path} is of a run with {name} {started[name]!r}, not {value!r}")

    def steps(self) -> list[int]:
        """The steps of the checkpoints that are whole, ascending: Orbax names a folder so when all is written.

        Of several processes it does when process 0 has written; the sums are there when all have.
        """
        alone = jax.process_count() == 1
        return [step for step, folder in self.named() if alone or (folder / checksums.FILE).exists()]

    def named(self) -> list[tuple[int, Path]]:
        """The steps and folders of what Orbax has named, ascending."""
        if not self.path.is_dir():
            return []
        return sorted(
            (int(match[1]), entry) for entry in self.path.iterdir() if (match := CHECKPOINT.fullmatch(entry.name))
        )

    def save(self, strategy: Form, state: Any, step: int, data: ShuffledBatches) -> None:
        """Begin to save the state after ``step`` steps, once the save before is whole, and with it where the data go
        on. Raises `SaveError`."""
        self.wait()
        with self._told(step):
            self.running = step, strategy.save_async(state, self.path / f"step_{step:06}", data)

    def wait(self) -> None:
        """Wait for the save that runs, if one does. Raises `SaveError`."""
        if self.running:
            step, saving = self.running
            with self._told(step):
                saving.result()
            self._saved()

    def look(self) -> None:
        """Raises `SaveError` where the save that runs has failed; does not wait."""
        if self.running:
            step, saving = self.running
            with self._told(step):
                done = saving.done()
            if done:
                self._saved()

    @contextmanager
    def _told(self, step: int) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self.running = None  # the next save need not fail
            last = f"the last that was is of step {steps[-1]}" if (steps := self.steps()) else "nor was one before"
            raise SaveError(f"step {step} is not saved, {last}: {error}") from error

    def _saved(self) -> None:
        """Once a save is whole, the oldest checkpoints beyond those to keep are removed."""
        self.running = None
        for old in self.steps()[: -self.keep] if jax.process_index() == 0 else ():
            shutil.rmtree(self.path / f"step_{old:06}")

    def restore(self, strategy: Form, data: ShuffledBatches) -> tuple[int, Any]:
        """The last checkpoint's step and state, on the strategy's mesh; the data go on from their place there.

        Raises ``ValueError`` where that is not the step of the state, and as `checkpointing.restore`.
        """
        from reference_impl.lifecycle.checkpointing import CheckpointError, DamagedError

        *before, step = self.steps()
        folder = self.path / f"step_{step:06}"
        go_on = (
            f"to go on from step {before[-1]}, move {folder} away and pass --resume again"
            if before
            else "there is no earlier checkpoint: start a new run in a new folder"
        )
        for later, unfinished in self.named() if jax.process_index() == 0 else ():
            if later > step:  # a save that one of several processes did not end
                shutil.rmtree(unfinished)
        try:
            state = strategy.restore(folder, data)
        except DamagedError as error:
            raise CheckpointError(f"{error}; {go_on}") from error
        if data.step != step:
            raise ValueError(
                f"{folder / 'data'} goes on after batch {data.step}, its state is of step {step}: expected the batch "
                f"that was trained on last; {go_on}"
            )
        return step, state


def claim(path: Path) -> None:
    """Lock a folder for as long as this process lives, if its file system locks folders. Raises ``ValueError`` where
    another process has."""
    if path in CLAIMED:
        return
    held = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(held)
        raise ValueError(f"{path} is of a run that goes on: wait for its end, or name a new folder") from None
    except OSError:
        os.close(held)
        return
    CLAIMED.add(path)


@contextmanager
def usable(option: str, path: Path) -> Iterator[None]:
    """Raises ``ValueError`` with the option, for an ``OSError`` of a folder that cannot be made, read or written."""
    try:
        yield
    except OSError as error:
        raise ValueError(
            f"{option} {path}: expected a folder in which files can be written, saw {error.strerror} "
            f"({error.filename or path})"
        ) from error
