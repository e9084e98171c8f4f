"""Checkpoints: a state that is saved and restored is the same state, bit for bit and shard for shard.

                 on disk                                   restored
    every leaf   once, by its path, whatever holds it      on the mesh and with the sharding of the abstract state
    the data     of each process, where it reads on        by any number of processes, if the iterator allows it

Each device writes its own shards and one of several replicas is written, so that saving gathers nothing. The abstract
state decides where a leaf goes: the same checkpoint is restored onto a mesh of another shape, and each device reads
only what it will hold. Parameters, moments and counters are leaves alike: a state that lacks one trains otherwise.

What is on disk is held to its checksums, and compared with the abstract state, before anything is read. Whoever starts
from the initial state and replaces what the checkpoint has keeps an initial value wherever a leaf was renamed, and
nothing tells.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import jax
from orbax.checkpoint import v1 as ocp

from reference_impl.lifecycle import checksums
from reference_impl.lifecycle.saved_data import PART, DamagedDataError, DataError, Resumable, SavedData

State = Any
"""A pytree of arrays, in any framework: dicts and optax's tuples, Flax's ``TrainState``, NNX modules."""


PATIENCE = 1200.0
"""Seconds that a save may take: Orbax's own limit to what its processes wait for."""

ARRAYS = "state"
"""The folder of the arrays in a checkpoint: Orbax's own name for them."""

UNFINISHED = ".orbax-checkpoint-tmp"
"""What Orbax adds to a folder's name until the checkpoint is whole."""


SHOWN = 2
"""How many leaves are named of those that differ, of those that are missing, and of those that are unknown."""


class CheckpointError(ValueError):
    """A folder that is no checkpoint, one of another state, or one that could not be written; the message names the
    folder, and of the leaves at fault the first, with how many more there are."""


class DamagedError(CheckpointError):
    """A checkpoint of which a part is missing or cannot be read: only an earlier one helps."""


class Saving:
    """A save that goes on in the background. What is saved is the state of the call, whatever becomes of its arrays."""

    def __init__(self, folder: Path, response: Any) -> None:
        self.folder, self.response = folder, response
        self.removed = self.summed = False

    def done(self) -> bool:
        """Whether the checkpoint is whole on disk; does not wait. Raises as `result` where it never will be."""
        try:
            self.result(timeout=0)
        except TimeoutError:
            return False
        return True

    def result(self, timeout: float = PATIENCE) -> None:
        """Wait until the checkpoint is whole on disk.

        Raises `CheckpointError` where it cannot be written, and removes what was, or where its checksums cannot be;
        ``TimeoutError`` where it is still being written after so many seconds, by this process or another one.
        """
        until = time.monotonic() + timeout
        late = f"{self.folder} is not saved: expected a whole checkpoint in {timeout:g} s"
        try:
            self.response.result(timeout=timeout)
        except TimeoutError as error:
            raise TimeoutError(late) from error
        except Exception as error:
            if not self.removed:  # later the folder may be that of another save
                self._remove()
            raise CheckpointError(f"{self.folder} was not saved: {str(error)[:1000]}") from error
        while not self.summed:
            try:
                self.summed = checksums.finish(self.folder, jax.process_index(), jax.process_count())
            except OSError as error:
                raise CheckpointError(f"{self.folder} was saved, and its checksums were not: {error}") from error
            if not self.summed:
                if time.monotonic() >= until:
                    raise TimeoutError(f"{late} of each of {jax.process_count()} processes")
                time.sleep(0.01)

    def _remove(self) -> None:
        """Remove what was written, and for half a second what comes after it: Orbax tells of the first writer that
        failed while others write on, and make their folders anew."""
        for _ in range(10):
            shutil.rmtree(self.folder.with_name(f"{self.folder.name}{UNFINISHED}"), ignore_errors=True)
            time.sleep(0.05)
        self.removed = True


def save(state: State, folder: Path, data: Resumable | None = None) -> None:
    """Write every leaf of a state into a folder; it is whole on disk when this returns. Raises as `save_async` and
    `Saving.result`."""
    save_async(state, folder, data).result()


def save_async(state: State, folder: Path, data: Resumable | None = None) -> Saving:
    """Begin to write every leaf of a state into a folder, and the place of a data iterator beside it. Training may go
    on, donate the state, and read on.

    Raises ``FileExistsError`` where something is in the folder already: no checkpoint is overwritten. ``TypeError``
    where JSON cannot hold the iterator's place.
    """
    parts = {ARRAYS: by_path(state)} | ({} if data is None else {PART: SavedData(data)})
    if folder.exists():
        if not folder.is_dir() or any(folder.iterdir()):
            raise FileExistsError(f"{folder} is not empty: expected a new folder for each checkpoint")
        folder.rmdir()  # Orbax makes the folder itself, under another name until it is whole
    context = ocp.Context()
    context.array.saving.use_replica_parallel = False  # else a slice is compiled for every shape that has replicas
    with context:
        return Saving(folder, ocp.save_checkpointables_async(folder, parts))


def restore(abstract_state: State, folder: Path, data: Resumable | None = None) -> State:
    """The state that was saved, as ``abstract_state`` places it: ``ShapeDtypeStruct`` leaves with shardings. A data
    iterator continues where it was saved.

    Raises `CheckpointError` where a leaf is missing, unknown, or of another shape or dtype, where the iterator's place
    is another iterator's, and where a later version wrote the checkpoint; as `DamagedError` where the folder is no
    checkpoint or one that cannot be read, a file is not what was written, or the iterator's place is missing.
    """
    expected = by_path(abstract_state)
    try:
        checksums.verify(folder, jax.process_index(), jax.process_count())
    except checksums.ChecksumError as error:
        raise DamagedError(f"{folder} is damaged, restore an earlier checkpoint: {error}") from error
    except checksums.FormatError as error:
        raise CheckpointError(f"{folder} is a checkpoint of another version: {error}") from error
    check(expected, folder)
    if data is not None:
        try:
            SavedData(data).resume(folder / PART)
        except DamagedDataError as error:
            raise DamagedError(str(error)) from error
        except DataError as error:
            raise CheckpointError(str(error)) from error
    try:
        restored = ocp.load(folder, expected)
    except Exception as error:  # Orbax raises a bare one where a file of arrays is missing or too short
        why = error.__cause__ or error  # TensorStore's names the array and the file, Orbax's prints a function
        raise DamagedError(
            f"{folder} could not be read and may be damaged, restore an earlier checkpoint: {str(why)[:400]}"
        ) from error
    return jax.tree.unflatten(jax.tree.structure(abstract_state), [restored[path] for path in expected])


def check(expected: dict[str, Any], folder: Path) -> None:
    """Raises as `restore`, reading only the checkpoint's metadata."""
    try:
        saved = ocp.metadata(folder).metadata
    except (ValueError, OSError) as error:
        raise DamagedError(f"{folder} is no checkpoint that Orbax can read: {error}") from error
    if saved is None:  # Orbax logs why, and returns none
        raise DamagedError(f"{folder} is damaged: Orbax cannot read its metadata; restore an earlier checkpoint")
    kinds = {path: (kind(expected.get(path)), kind(saved.get(path))) for path in expected | saved}
    apart = [path for path, (is_, was) in kinds.items() if is_ != was]
    problems = {
        "differ": [path for path in apart if path in expected and path in saved],
        "are missing": [path for path in apart if path not in saved],
        "are unknown": [path for path in apart if path not in expected],
    }
    told = []
    for what, paths in problems.items():
        told += ["{}: expected {}, the checkpoint has {}".format(path, *kinds[path]) for path in paths[:SHOWN]]
        told += [f"{len(paths) - SHOWN} more {what}"] if len(paths) > SHOWN else []
    if told:
        raise CheckpointError(
            f"{folder} is not a checkpoint of this state: {'; '.join(told)}. The state has {len(expected)} leaves, the "
            f"checkpoint {len(saved)}: restore it as the model, sizes and optimizer of which it was saved"
        )


def by_path(state: State) -> dict[str, Any]:
    """The leaves of a state by path, as ``parameters/dense_0/kernel``, in the order of the tree."""
    flat, _ = jax.tree_util.tree_flatten_with_path(state)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in flat}


def kind(leaf: Any) -> str:
    """A leaf's dtype and shape in words. Of typed random keys those of their data, which is what is on disk."""
    if leaf is None:
        return "no such leaf"
    if not hasattr(leaf, "dtype"):  # Orbax keeps what it was given, and others give it trees
        return f"{type(leaf).__name__}, which is no array"
    if jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.eval_shape(jax.random.key_data, jax.ShapeDtypeStruct(leaf.shape, leaf.dtype))
    return f"{leaf.dtype}{list(leaf.shape)}"
