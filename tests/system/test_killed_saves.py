"""A process that is killed while it saves: no part of its checkpoint is taken for one, and the next saves happen."""

import subprocess
import sys
import textwrap

import jax
import numpy as np
import pytest

from reference_impl.lifecycle.checkpointing import CheckpointError, restore, save

SAVES_UNTIL = textwrap.dedent(
    """
    import os, signal, sys
    from pathlib import Path

    import jax.numpy as jnp
    from reference_impl.lifecycle.checkpointing import save

    folder, word = Path(sys.argv[1]), sys.argv[2]

    def kill(event, args):
        if event in ("open", "os.mkdir", "os.rename") and word in f"{event} {args[0]}":
            os.kill(os.getpid(), signal.SIGKILL)

    state = {"kernel": jnp.arange(4096, dtype=jnp.float32), "count": jnp.int32(2)}
    save(state, folder / "first")
    sys.addaudithook(kill)
    save(state, folder / "second")
    """
)
"""Kills itself before the first file operation that has a word: Orbax's own, which pass through Python, in order."""

POINTS = {
    "temporary folder": "os.mkdir",
    "arrays' metadata": "array_metadatas",
    "tree's metadata": "/_METADATA",
    "checkpoint's metadata": "_CHECKPOINT_METADATA",
    "commit": "commit_success",
    "rename": "os.rename",
}


@pytest.mark.parametrize("word", POINTS.values(), ids=POINTS)
def test_a_killed_save_leaves_no_checkpoint(tmp_path, word):
    """The checkpoint before it loads, what it left does not, and the same folder can be saved to."""
    killed = subprocess.run([sys.executable, "-c", SAVES_UNTIL, tmp_path, word], timeout=120, capture_output=True)
    assert killed.returncode == -9, killed.stderr.decode()[-2000:]
    placed = {"sharding": jax.sharding.SingleDeviceSharding(jax.devices()[0])}
    state = {
        "kernel": jax.ShapeDtypeStruct((4096,), np.float32, **placed),
        "count": jax.ShapeDtypeStruct((), np.int32, **placed),
    }
    first = restore(state, tmp_path / "first")
    assert np.array_equal(first["kernel"], np.arange(4096)) and first["count"] == 2
    for left in tmp_path.iterdir():
        if left.name != "first":
            with pytest.raises(CheckpointError):
                restore(state, left)
    save({"kernel": first["kernel"] + 1, "count": first["count"]}, tmp_path / "second")
    assert np.array_equal(restore(state, tmp_path / "second")["kernel"], np.arange(4096) + 1)
