"""The sums of a checkpoint's files, of which each process holds its share."""

import jax.numpy as jnp
import pytest

from reference_impl.lifecycle import checksums
from reference_impl.lifecycle.checkpointing import save


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
