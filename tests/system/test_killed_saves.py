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
    from contextlib import suppress
    from pathlib import Path
    from threading import Thread

    import jax.numpy as jnp
    import numpy as np
    from reference_impl.lifecycle.checkpointing import save

    folder, word = Path(sys.argv[1]), sys.argv[2]

    def kill(event, args):
        if event in ("open", "os.mkdir", "os.rename") and word in f"{event} {args[0]}":
            os.kill(os.getpid(), signal.SIGKILL)

    def kill_in_writing():
        arrays = folder / "second.orbax-checkpoint-tmp" / "state" / "ocdbt.process_0" / "d"
        while True:
            with suppress(FileNotFoundError):  # until it is there
                if any(part.stat().st_size for part in os.scandir(arrays)):
                    os.kill(os.getpid(), signal.SIGKILL)

    drawn = np.random.default_rng(0).standard_normal(SIZE, np.float32)
    state = {"kernel": jnp.asarray(drawn), "count": jnp.int32(2)}
    save(state, folder / "first")
    if word == "writing":
        Thread(target=kill_in_writing, daemon=True).start()
    else:
        sys.addaudithook(kill)
    save(state, folder / "second")
    """
)
"""Kills itself before the first file operation that has a word: Orbax's own, which pass through Python, in order; or
while TensorStore writes the arrays, once some of their bytes are on disk."""

LARGE = 1 << 24
"""Numbers of a kernel whose 64 MiB TensorStore writes in pieces of 2 MiB."""

PACKED = 0.9
"""Of which share random numbers, which are packed to 0.92 of their bytes, are fewer than all."""

POINTS = {
    "temporary folder": "os.mkdir",
    "arrays": "writing",
    "arrays' metadata": "array_metadatas",
    "tree's metadata": "/_METADATA",
    "checkpoint's metadata": "_CHECKPOINT_METADATA",
    "commit": "commit_success",
    "rename": "os.rename",
}


@pytest.mark.parametrize("word", POINTS.values(), ids=POINTS)
def test_a_killed_save_leaves_no_checkpoint(tmp_path, word):
    """The checkpoint before it loads, what it left does not, and the same folder can be saved to."""
    size = LARGE if word == "writing" else 4096
    script = f"SIZE = {size}\n{SAVES_UNTIL}"
    killed = subprocess.run([sys.executable, "-c", script, tmp_path, word], timeout=120, capture_output=True)
    assert killed.returncode == -9, killed.stderr.decode()[-2000:]
    if word == "writing":
        assert 0 < sum(part.stat().st_size for part in tmp_path.glob("second*/**/d/*")) < PACKED * 4 * size
    placed = {"sharding": jax.sharding.SingleDeviceSharding(jax.devices()[0])}
    state = {
        "kernel": jax.ShapeDtypeStruct((size,), np.float32, **placed),
        "count": jax.ShapeDtypeStruct((), np.int32, **placed),
    }
    first = restore(state, tmp_path / "first")
    drawn = np.random.default_rng(0).standard_normal(size, np.float32)
    assert np.array_equal(first["kernel"], drawn) and first["count"] == 2
    for left in tmp_path.iterdir():
        if left.name != "first":
            with pytest.raises(CheckpointError):
                restore(state, left)
    save({"kernel": first["kernel"] + 1, "count": first["count"]}, tmp_path / "second")
    assert np.array_equal(restore(state, tmp_path / "second")["kernel"], drawn + 1)
