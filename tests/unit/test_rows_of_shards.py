"""Which rows of a batch lie on which device: also where microbatches come first."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from meshproof.observing.moved_rows import cut, row_dimension, rows_by_shard
from meshproof.observing.seen import NotSupported


def subject(shape, spec, microbatches=1, **more):
    """Of one field, and others."""
    batch = {"x": np.zeros(shape, np.float32)} | more
    mesh = Mesh(np.array(jax.devices()), ("data",))
    placed = {name: jax.device_put(field, NamedSharding(mesh, P(*spec[: field.ndim]))) for name, field in batch.items()}
    contract = SimpleNamespace(microbatches=microbatches)
    return SimpleNamespace(host_batches=[batch], batches=[placed], case=SimpleNamespace(contract=contract))


@pytest.mark.parametrize(
    ("given", "dimension", "shards"),
    [
        (subject((16, 3), ("data",)), 0, 8),
        (subject((16, 3), ("data",), 2), 0, 8),
        (subject((2, 16, 3), (None, "data"), 2), 1, 8),
        (subject((2, 16, 3), (None, "data"), 4), 0, 1),
        (subject((2, 16, 3), (None, "data")), 0, 1),
        (subject((2, 16, 3), (None, "data"), 2, rate=np.ones(2)), 0, 1),
    ],
    ids=["rows", "accumulated", "microbatches first", "others", "tokens split", "a number for each microbatch"],
)
def test_rows_are_behind_the_microbatches_that_come_first(given, dimension, shards):
    """As many as the contract says, of which each device has all, and a part of their rows."""
    assert row_dimension(given) == dimension
    rows = rows_by_shard(given)
    assert rows.shape[0] == shards and rows.size == given.host_batches[0]["x"].shape[dimension]
    assert isinstance(rows_by_shard(given, 9), NotSupported)


@pytest.mark.parametrize(
    ("rows", "shards", "parts", "expected"),
    [
        (8, 2, 2, ["45670123", "10325476", "23016745", "10325476"]),
        (4, 2, 2, ["2301", "1032"]),
        (2, 1, 2, []),
        (9, 3, 2, []),
    ],
)
def test_parts_change_places(rows, shards, parts, expected):
    """Halves of the whole batch, by neighbours and dealt; then of each shard, where a half has more than one row."""
    found = list(cut(np.arange(rows), shards, parts))
    assert ["".join(map(str, moved)) for moved, _ in found] == expected
    assert all(sorted(turned) == list(range(rows)) for _, turned in found)
