"""Checkpoints of the book: what is refused, in which words, and what another mesh makes of them."""

import re
import threading
import time
from contextlib import suppress

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from meshproof.observing.background_saves import no_file_over
from reference_impl.lifecycle import checksums
from reference_impl.lifecycle.checkpointing import CheckpointError, DamagedError, by_path, restore, save, save_async

WHOLE = {"kernel": PartitionSpec("data"), "count": PartitionSpec()}


def mesh(**axes):
    """A mesh of the first devices."""
    return jax.make_mesh(tuple(axes.values()), tuple(axes), axis_types=(AxisType.Auto,) * len(axes))


def state(on=None, specs=None, **leaves):
    """A kernel and a counter, or other leaves, placed."""
    on, specs = on or mesh(data=8), specs or WHOLE
    numbers = np.random.default_rng(0).standard_normal((64, 16), np.float32)
    leaves = leaves or {"kernel": numbers, "count": np.int32(3)}
    return {
        name: jax.device_put(leaf, NamedSharding(on, specs.get(name, PartitionSpec()))) for name, leaf in leaves.items()
    }


def abstract(state):
    """Its shapes and shardings."""
    return jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=a.sharding), state)


@pytest.fixture
def saved(tmp_path):
    """A state and its checkpoint."""
    held, folder = state(), tmp_path / "checkpoint"
    save(held, folder)
    return held, folder


def test_a_state_comes_back(saved):
    """Bits, dtypes and shardings."""
    held, folder = saved
    for path, leaf in by_path(restore(abstract(held), folder)).items():
        assert leaf.dtype == held[path].dtype and leaf.sharding == held[path].sharding
        assert np.asarray(leaf).tobytes() == np.asarray(held[path]).tobytes()


def test_a_state_is_restored_onto_another_mesh(saved):
    """FSDP over 8 devices to rows over 2 and columns over 4: each device has its own part."""
    held, folder = saved
    other = state(mesh(data=2, model=4), {"kernel": PartitionSpec("data", "model")})
    restored = restore(abstract(other), folder)
    assert restored["kernel"].sharding == other["kernel"].sharding
    assert restored["kernel"].addressable_shards[0].data.shape == (32, 4)
    assert np.asarray(restored["kernel"]).tobytes() == np.asarray(held["kernel"]).tobytes()


def test_a_typed_key_comes_back(tmp_path):
    """As a key, with the same words."""
    held = {"key": jax.random.key(7)}
    save(held, tmp_path / "checkpoint")
    restored = restore(abstract(held), tmp_path / "checkpoint")["key"]
    assert restored.dtype == held["key"].dtype
    assert jnp.array_equal(jax.random.key_data(restored), jax.random.key_data(held["key"]))


@pytest.mark.parametrize(
    ("leaves", "complaint"),
    [
        ({"bias": np.zeros(16, np.float32)}, r"bias: expected float32[16], the checkpoint has no such leaf"),
        (
            {"kernel": np.zeros((64, 8), np.float32)},
            r"kernel: expected float32[64, 8], the checkpoint has float32[64, 16]",
        ),
        (
            {"kernel": np.zeros((64, 16), np.int32)},
            "kernel: expected int32[64, 16], the checkpoint has float32[64, 16]",
        ),
    ],
    ids=["missing", "shape", "dtype"],
)
def test_a_leaf_that_does_not_fit_is_named(saved, leaves, complaint):
    """With what was expected, and what is there."""
    held, folder = saved
    with pytest.raises(CheckpointError, match=re.escape(complaint)):
        restore(abstract(held | state(**leaves)), folder)


def test_a_leaf_that_the_state_lacks_is_named(saved):
    """A checkpoint of more than the state is one of another state."""
    held, folder = saved
    with pytest.raises(CheckpointError, match=r"count: expected no such leaf, the checkpoint has int32\[\]"):
        restore(abstract({"kernel": held["kernel"]}), folder)


@pytest.mark.parametrize("files", [(), ("notes.txt",)], ids=["empty", "of something else"])
def test_a_folder_that_is_no_checkpoint_is_refused(tmp_path, files):
    """By a type of its own, with the folder."""
    for name in files:
        (tmp_path / name).write_text("no checkpoint", encoding="utf-8")
    with pytest.raises(CheckpointError, match=re.escape(f"{tmp_path} is no checkpoint")):
        restore(abstract(state()), tmp_path)


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    """As one that is empty."""
    with pytest.raises(CheckpointError, match="is no checkpoint"):
        restore(abstract(state()), tmp_path / "nowhere")


def test_a_checkpoint_is_not_overwritten(saved):
    """What was saved first stays."""
    held, folder = saved
    with pytest.raises(FileExistsError, match=f"{re.escape(str(folder))} is not empty"):
        save(jax.tree.map(jnp.zeros_like, held), folder)
    assert np.array_equal(restore(abstract(held), folder)["kernel"], held["kernel"])


def test_an_empty_folder_is_taken(tmp_path):
    """A folder that was made for it."""
    held = state()
    save(held, tmp_path)
    assert restore(abstract(held), tmp_path)["count"] == 3


@pytest.mark.parametrize("left", [0, 100], ids=["empty", "cut off"])
def test_metadata_that_cannot_be_read_is_refused(saved, left):
    """In words: Orbax only logs it."""
    held, folder = saved
    file = folder / "state" / "_METADATA"
    file.write_bytes(file.read_bytes()[:left])
    with pytest.raises(CheckpointError, match=f"{re.escape(str(folder))} is damaged"):
        restore(abstract(held), folder)


def arrays_of(folder):
    """The file that holds the arrays: the largest."""
    return max((path for path in folder.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Orbax raises once a shard
def test_arrays_that_are_cut_off_are_refused(tmp_path):
    """By the same type, without checksums too."""
    held = state(kernel=np.random.default_rng(0).standard_normal((256, 256), np.float32))
    folder = tmp_path / "checkpoint"
    save(held, folder)
    (folder / checksums.FILE).unlink()
    file = arrays_of(folder)
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(CheckpointError, match=f"{re.escape(str(folder))} could not be read and may be damaged"):
        restore(abstract(held), folder)


def test_a_flipped_bit_is_noticed_by_its_checksum(tmp_path):
    """Orbax writes none of an array: where it begins to, docs/checkpoints.md is wrong."""
    held = state(kernel=np.random.default_rng(0).standard_normal((256, 256), np.float32))
    folder = tmp_path / "checkpoint"
    save(held, folder)
    file = arrays_of(folder)
    contents = bytearray(file.read_bytes())
    contents[len(contents) // 2] ^= 1
    file.write_bytes(contents)
    with pytest.raises(
        DamagedError, match=r"is damaged, restore an earlier checkpoint: state/ocdbt\S+ is not what was"
    ):
        restore(abstract(held), folder)
    (folder / checksums.FILE).unlink()
    assert not np.array_equal(restore(abstract(held), folder)["kernel"], held["kernel"])


def test_sums_that_cannot_be_written_are_an_error(tmp_path, monkeypatch):
    """The next `result` tries again."""
    saving = save_async(held := state(), tmp_path / "checkpoint")
    with (
        monkeypatch.context() as patch,
        pytest.raises(CheckpointError, match="saved, and its checksums were not: "),
    ):
        patch.setattr(checksums, "FILE", "no folder/checksums.json")
        saving.result()
    saving.result()
    assert (tmp_path / "checkpoint" / checksums.FILE).exists() and restore(abstract(held), tmp_path / "checkpoint")


@pytest.mark.parametrize(
    ("told", "error", "message"),
    [
        ('{"format": 2}', CheckpointError, "is a checkpoint of another version: its format is 2: expected 1; the ver"),
        (
            '{"format": 1, "crc32": {"state/d": 7}}',
            DamagedError,
            "state/d is missing$",
        ),
        ("{", DamagedError, "checksums.json cannot be read: "),
        ("[1]", DamagedError, "checksums.json cannot be read: "),
    ],
)
def test_sums_that_are_of_another_checkpoint_are_refused(tmp_path, told, error, message):
    """Those of a later version by both formats, before anything is read; it is not called damaged."""
    held = state()
    save(held, tmp_path / "checkpoint")
    (tmp_path / "checkpoint" / checksums.FILE).write_text(told)
    with pytest.raises(CheckpointError, match=message) as raised:
        restore(abstract(held), tmp_path / "checkpoint")
    assert raised.type is error


def test_what_is_saved_in_the_background_is_the_state_of_the_call(tmp_path):
    """Of five states, each donated ten times over while it is written, bit for bit."""
    step = jax.jit(lambda state: jax.tree.map(lambda leaf: leaf + 1, state), donate_argnums=0)
    for number in range(5):
        held = state(kernel=np.random.default_rng(number).standard_normal((1024, 512), np.float32), count=np.int32(3))
        expected, folder = jax.tree.map(np.array, held), tmp_path / str(number)
        saving, after = save_async(held, folder), held
        for _ in range(10):
            after = step(after)
        saving.result()
        restored = restore(abstract(after), folder)
        assert all(np.asarray(restored[path]).tobytes() == leaf.tobytes() for path, leaf in expected.items())
        assert saving.done()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_save_that_fails_in_the_background_leaves_nothing_and_the_next_is_whole(tmp_path):
    """On a full disk what was written is removed, every look at it raises, and the same folder can be saved to."""
    held, folder = state(kernel=np.random.default_rng(0).standard_normal((256, 256), np.float32)), tmp_path / "it"
    with no_file_over(1000):
        saving = save_async(held, folder)
        with pytest.raises(CheckpointError, match=f"{re.escape(str(folder))} was not saved: .*too large"):
            saving.result()
    with pytest.raises(CheckpointError, match="was not saved"):
        saving.done()
    assert list(tmp_path.iterdir()) == []
    save(held, folder)
    assert np.array_equal(restore(abstract(held), folder)["kernel"], held["kernel"])


def test_what_is_written_after_a_save_has_failed_goes_too(tmp_path):
    """Orbax tells of the first writer's failure while the others write on."""
    saving = save_async(state(), tmp_path / "it")
    saving.result()

    class Failed:
        def result(self, timeout):
            raise OSError("a full disk")

    def write_on():
        for number in range(5):
            time.sleep(0.05)
            late = tmp_path / "it.orbax-checkpoint-tmp" / f"state_{number}"
            with suppress(FileNotFoundError):  # its parent may be removed as it is made
                late.mkdir(parents=True)

    saving.response, writer = Failed(), threading.Thread(target=write_on)
    writer.start()
    with pytest.raises(CheckpointError, match="it was not saved: a full disk"):
        saving.result()
    writer.join()
    assert [path.name for path in tmp_path.iterdir()] == ["it"]


def test_a_save_that_has_failed_removes_nothing_of_the_next(tmp_path):
    """Which writes to the same folder while somebody looks at the failed one again."""
    with no_file_over(1000):
        failed = save_async(
            state(kernel=np.random.default_rng(0).standard_normal((256, 256), np.float32)), tmp_path / "it"
        )
        with pytest.raises(CheckpointError, match="too large"):
            failed.result()
    writing = tmp_path / "it.orbax-checkpoint-tmp" / "state"
    writing.mkdir(parents=True)
    with pytest.raises(CheckpointError, match="too large"):
        failed.done()
    assert writing.is_dir()


def test_a_save_that_does_not_end_is_not_waited_for_for_ever(tmp_path):
    """It is named, with the seconds that it was given; its folder stays."""

    class Slow:
        def result(self, timeout):
            raise TimeoutError

    saving = save_async(state(), tmp_path / "slow")
    saving.result()
    saving.response = Slow()
    with pytest.raises(TimeoutError, match=r"slow is not saved: expected a whole checkpoint in 0\.5 s"):
        saving.result(timeout=0.5)
    assert not saving.done()
    assert (tmp_path / "slow").is_dir()
