"""A save writes each byte of the state once: bytes on disk beside bytes of the state, whoever holds copies of it."""

import os
import subprocess
import sys
import textwrap

import jax
import numpy as np
import pytest

from reference_impl.lifecycle import checkpointing
from reference_impl.lifecycle.checkpointing import save
from reference_impl.lifecycle.choosing import choose

pytestmark = pytest.mark.any_stack

AROUND = 0.05
"""What Orbax writes beside the arrays, as a share of them: the index and the metadata."""


def random_bits(leaf):
    """A leaf of that shape, dtype and sharding that no compression makes smaller."""
    drawn = np.random.default_rng(0).integers(0, 256, leaf.nbytes, np.uint8)
    return jax.device_put(drawn.view(leaf.dtype).reshape(leaf.shape), leaf.sharding)


def state_of(page):
    """Parameters and momentum of the perceptron under a page of the book, on eight devices: 1.7 MB."""
    form = choose(page, "jax", "mlp", {"data": 8}, 64)
    return jax.tree.map(random_bits, form.init(jax.random.key(0)))


def copies(folder, size):
    """How often the state's bytes are on disk."""
    return sum(file.stat().st_size for file in (folder / "state").rglob("*") if file.is_file()) / size


@pytest.mark.parametrize(("page", "held"), [("fsdp", 1), ("data_parallel", 8)])
def test_a_save_writes_each_byte_once(page, held, tmp_path):
    """Of FSDP (8), and of data parallelism (8), whose devices hold eight copies."""
    state = state_of(page)
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
    on_devices = sum(shard.data.nbytes for leaf in jax.tree.leaves(state) for shard in leaf.addressable_shards)
    assert on_devices == pytest.approx(held * size, rel=AROUND)
    save(state, tmp_path / "it")
    assert 1 <= copies(tmp_path / "it", size) < 1 + AROUND


@pytest.mark.parametrize("page", ["fsdp", "data_parallel"])
def test_a_save_of_every_device_s_copy_is_noticed(page, tmp_path, monkeypatch):
    """Each device gathers and writes all: eight copies."""
    state = state_of(page)
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(state))

    def of_each(state):
        whole = {path: np.asarray(leaf) for path, leaf in by_path(state).items()}
        return {f"{path}/{at.id}": jax.device_put(leaf, at) for path, leaf in whole.items() for at in jax.devices()}

    by_path = checkpointing.by_path
    monkeypatch.setattr(checkpointing, "by_path", of_each)
    save(state, tmp_path / "it")
    assert copies(tmp_path / "it", size) == pytest.approx(8, rel=AROUND)


SAVES = textwrap.dedent(
    """
    import sys
    from pathlib import Path

    import jax
    import numpy as np
    from jax.sharding import NamedSharding, PartitionSpec

    from reference_impl.lifecycle.checkpointing import save
    from reference_impl.lifecycle.multiprocess import join

    jax.config.update("jax_num_cpu_devices", 4)
    join()
    mesh = jax.make_mesh((2, 4), ("process", "data"))
    specs = {"sharded": (1, None, mesh.axis_names), "replicated": (1,), "each": (2, "process", "data")}
    times, *spec = specs[sys.argv[2]]
    rows = np.random.default_rng(0).integers(0, 2**32, (1, 1024, 256), np.uint32).repeat(times, 0)
    sharding = NamedSharding(mesh, PartitionSpec(*spec))
    save({"w": jax.make_array_from_callback(rows.shape, sharding, lambda at: rows[at])}, Path(sys.argv[1]))
    """
)
"""A mebibyte in two processes, of which each has half of the mesh."""


@pytest.mark.parametrize(("held", "expected"), [("sharded", 1), ("replicated", 1), ("each", 2)])
def test_two_processes_write_each_byte_once(held, expected, tmp_path):
    """Between them; where each writes a whole state of its own, twice as much is on disk."""
    launch = [sys.executable, "-m", "meshproof", "launch", "-n", "2", "--timeout", "100", "--"]
    saves = [sys.executable, "-c", SAVES, str(tmp_path / "it"), held]
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    done = subprocess.run([*launch, *saves], capture_output=True, text=True, timeout=150, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert expected <= copies(tmp_path / "it", 1 << 20) < expected * (1 + AROUND)
