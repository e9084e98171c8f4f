"""The data iterator's part of a checkpoint: who continues from which file, and what is refused in which words."""

import json
import re
from dataclasses import replace

import grain
import jax
import numpy as np
import pytest
from orbax.checkpoint import v1 as ocp

from reference_impl.lifecycle import checksums
from reference_impl.lifecycle.checkpointing import CheckpointError, DamagedError, restore, save, save_async
from reference_impl.lifecycle.data_loading import ShuffledBatches
from reference_impl.lifecycle.run_folder import RunFolder
from reference_impl.lifecycle.saved_data import DataError, SavedData, file_for
from reference_impl.lifecycle.training_data import Shuffled

DATA = Shuffled({"x": np.arange(40, dtype=np.int32)}, 8, seed=2)
STATE = {"count": np.int32(3)}


def abstract():
    """Its shape, on one device."""
    return {"count": jax.ShapeDtypeStruct((), np.int32, sharding=jax.sharding.SingleDeviceSharding(jax.devices()[0]))}


def read(steps, reader=0, readers=1, data=DATA):
    """An iterator that has returned so many batches."""
    iterator = ShuffledBatches(data, reader, readers)
    for _ in range(steps):
        next(iterator)
    return iterator


@pytest.fixture
def checkpoint(tmp_path):
    """A state, and data after three steps; without checksums, which would tell of damage first."""
    save(jax.device_put(STATE), tmp_path / "checkpoint", read(3))
    (tmp_path / "checkpoint" / checksums.FILE).unlink()
    return tmp_path / "checkpoint"


def test_the_next_batch_is_that_behind_the_last(checkpoint):
    """Though two more were read ahead; also by Orbax itself, and for one of two readers."""
    whole, half = read(0), read(0, 1, 2)
    assert restore(abstract(), checkpoint, whole)["count"] == 3
    ocp.load_checkpointables(checkpoint, {"data": SavedData(half)})
    expected = DATA.batch(3)["x"]
    assert whole.step == half.step == 3
    assert (next(whole)["x"] == expected).all() and (next(half)["x"] == expected[4:]).all()


def test_the_place_is_that_of_the_call(tmp_path):
    """However far the loop reads while it is saved."""
    iterator = read(2)
    saved = SavedData(iterator)
    next(iterator)
    assert json.loads(saved.state)["batches"]["next_index"] == 2


def test_grains_own_iterators_are_saved(tmp_path):
    """They have a place that JSON can hold."""
    numbers = lambda: iter(grain.MapDataset.range(9).to_iter_dataset())  # noqa: E731
    first, second = numbers(), numbers()
    assert [next(first) for _ in range(4)] == [0, 1, 2, 3]
    save(jax.device_put(STATE), tmp_path / "checkpoint", first)
    restore(abstract(), tmp_path / "checkpoint", second)
    assert next(second) == 4


def test_a_place_that_json_cannot_hold_is_refused():
    """With what it is."""
    iterator = read(0)
    iterator.get_state = lambda: b"4"
    with pytest.raises(TypeError, match="the state of ShuffledBatches is b'4', expected what JSON can hold"):
        SavedData(iterator)


def test_a_checkpoint_without_data_is_refused(tmp_path):
    """It names the file that it lacks, and what can be done."""
    save(jax.device_put(STATE), tmp_path / "old")
    with pytest.raises(CheckpointError, match=r"old/data/process_0-of-1\.json is missing: .* restore the state alone"):
        restore(abstract(), tmp_path / "old", read(0))


@pytest.mark.parametrize(
    ("names", "asked", "expected"),
    [
        (["0-of-2", "1-of-2"], (1, 2, False), "process_1-of-2.json"),
        (["0-of-2", "1-of-2"], (3, 4, True), "process_1-of-2.json"),
        (["0-of-2", "1-of-2"], (0, 1, True), "process_0-of-2.json"),
    ],
)
def test_each_process_has_its_file(tmp_path, names, asked, expected):
    """That of its number, or of its number among those that saved."""
    for name in names:
        (tmp_path / f"process_{name}.json").touch()
    assert file_for(tmp_path, *asked) == tmp_path / expected


@pytest.mark.parametrize(
    ("names", "asked", "complaint"),
    [
        (["0-of-2"], (0, 2, True), "process_1-of-2.json is missing, those of other processes are there: expected one"),
        (["0-of-2", "1-of-2"], (0, 4, False), "saved by 2 processes and is restored on 4: expected 2, or an iterator"),
        ([], (1, 2, True), "process_1-of-2.json is missing: the checkpoint was saved without its data iterator"),
    ],
)
def test_who_has_no_file_is_told(tmp_path, names, asked, complaint):
    """With the file, or both numbers."""
    for name in names:
        (tmp_path / f"process_{name}.json").touch()
    with pytest.raises(DataError, match=re.escape(complaint)):
        file_for(tmp_path, *asked)


@pytest.mark.parametrize(
    ("other", "complaint"),
    [
        (replace(DATA, batch_size=4), "saved of batch size 8, and there now is 4"),
        (replace(DATA, seed=1), "saved of seed 2, and there now is 1"),
        (Shuffled({"x": np.arange(1, 41, dtype=np.int32)}, 8, seed=2), "saved of digest of all examples [0-9a-f]{12},"),
        (Shuffled({"x": np.arange(41, dtype=np.int32)}, 8, seed=2), "saved of number of examples 40, and there now is"),
    ],
)
def test_other_data_are_refused(checkpoint, other, complaint):
    """One example that changed would do: the rest of the epoch is another one."""
    with pytest.raises(
        CheckpointError, match=rf"process_0-of-1\.json is no place of this data iterator: .*{complaint}"
    ):
        restore(abstract(), checkpoint, read(0, data=other))


@pytest.mark.parametrize("content", ["", '{"data"', "[]", '{"data": {}}'])
def test_a_file_that_is_none_is_refused(checkpoint, content):
    """By its name."""
    (checkpoint / "data" / "process_0-of-1.json").write_text(content, encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"process_0-of-1\.json (cannot be read, restore an earlier|is no place)"):
        restore(abstract(), checkpoint, read(0))


def test_a_key_that_is_missing_is_damage(checkpoint):
    """One flipped bit is enough: of no other data is said that they were saved."""
    file = checkpoint / "data" / "process_0-of-1.json"
    file.write_bytes(file.read_bytes().replace(b"number of examples", b"number of dxamples"))
    with pytest.raises(DamagedError, match=r"json is no place of this data iterator: KeyError\('number of examples'\)"):
        restore(abstract(), checkpoint, read(0))


def test_data_of_another_step_than_the_state_are_refused(tmp_path):
    """With both numbers."""

    class Form:
        def save_async(self, state, folder, data):
            return save_async(state, folder, data)

        def restore(self, folder, data):
            return restore(abstract(), folder, data)

    folder = RunFolder.open(tmp_path, 3, {}, resume=False)
    folder.save(Form(), jax.device_put(STATE), 2, read(3))
    folder.wait()
    with pytest.raises(ValueError, match=r"step_000002/data goes on after batch 3, its state is of step 2: exp"):
        folder.restore(Form(), read(0))


def test_readers_share_a_batch_equally():
    """Or are told all numbers."""
    with pytest.raises(ValueError, match="reader 0 of 3 and a global batch of 8 examples: expected a reader from 0"):
        ShuffledBatches(DATA, 0, 3)
    with pytest.raises(ValueError, match="readers is -2: expected 1 or more"):
        ShuffledBatches(DATA, 0, -2)
