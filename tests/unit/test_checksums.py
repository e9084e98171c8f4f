"""The sums of a checkpoint's files, of which each process holds its share."""

import shutil
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest

from reference_impl.lifecycle import checksums
from reference_impl.lifecycle.checkpointing import Saving, save
from reference_impl.lifecycle.run_folder import RunFolder


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_each_file_is_held_to_its_sum_by_one_process(tmp_path, processes):
    """Whichever is damaged."""
    folder = tmp_path / "checkpoint"
    save({"kernel": jnp.ones((8, 4)), "count": jnp.zeros(())}, folder)
    for file in checksums.files(folder):
        held = file.read_bytes()
        file.write_bytes(held + b"more")
        named = []
        for process in range(processes):
            try:
                checksums.verify(folder, process, processes)
            except checksums.ChecksumError as error:
                named.append(str(error))
        assert named == [f"{file.relative_to(folder).as_posix()} is not what was written"]
        file.write_bytes(held)


@pytest.fixture
def one_of_two(monkeypatch):
    """Make this process one of two, of this number."""

    def become(number):
        monkeypatch.setattr(jax, "process_count", lambda: 2)
        monkeypatch.setattr(jax, "process_index", lambda: number)

    return become


def test_a_checkpoint_is_whole_when_every_process_has_said_so(tmp_path):
    """Process 0 writes the sums then, and no trace of the others' words stays."""
    folder = tmp_path / "step_000002"
    folder.mkdir()
    (folder / "array").write_bytes(b"numbers")
    assert not checksums.finish(folder, 0, 3) and not checksums.finish(folder, 1, 3)
    assert not checksums.finish(folder, 0, 3) and not checksums.finish(folder, 2, 3)
    assert not (folder / checksums.FILE).exists()
    assert all(checksums.finish(folder, process, 3) for process in range(3))
    assert sorted(path.name for path in folder.iterdir()) == ["array", checksums.FILE]


def test_what_one_of_two_processes_has_not_written_is_no_checkpoint(tmp_path, one_of_two):
    """It is none to resume, no new run begins over it, and it makes room where the run goes on from the one before."""
    saved = tmp_path / "saved"
    save({"kernel": jnp.ones(4)}, saved)
    torn = tmp_path / "run" / "step_000004"
    shutil.copytree(saved, torn)
    (torn / checksums.FILE).unlink()
    assert RunFolder(tmp_path / "run", 2).steps() == [4]
    one_of_two(0)
    with pytest.raises(ValueError, match=r"no checkpoint to resume: .*; of step_000004 not every process has written"):
        RunFolder.open(tmp_path / "run", 2, {}, resume=True)
    with pytest.raises(FileExistsError, match="has checkpoints already"):
        RunFolder.open(tmp_path / "run", 2, {}, resume=False)
    shutil.copytree(saved, tmp_path / "run" / "step_000002")
    data = SimpleNamespace(step=2)
    strategy = SimpleNamespace(restore=lambda folder, data: folder.name)
    assert RunFolder(tmp_path / "run", 2).restore(strategy, data) == (2, "step_000002")
    assert not torn.exists()


def test_process_0_waits_for_the_others_words(tmp_path, one_of_two):
    """So long as it is told to."""
    one_of_two(0)
    response = SimpleNamespace(result=lambda timeout: None)
    (tmp_path / "step_000002").mkdir()
    saving = Saving(tmp_path / "step_000002", response)
    assert not saving.done()
    with pytest.raises(TimeoutError, match=r"expected a whole checkpoint in 0\.1 s of each of 2 processes"):
        saving.result(timeout=0.1)
    (tmp_path / "step_000002" / f"{checksums.FILE}.1").touch()
    assert saving.done()
