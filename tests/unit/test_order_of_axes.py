"""Which of a mesh's axes should be innermost, by what moves over each."""

import pytest

from meshproof.hlo import Collective
from meshproof.targets import read_target
from suites.test_bytes_on_the_wire import in_another_order


def moved(operation, axis, size):
    """Bytes on the wire over an axis."""
    return Collective(operation, (axis,), 1, 1, size, "f32", operation, "other", wire_bytes=size)


TOLD = "by the published bandwidths all bytes take 0.38 s; with the mesh's axes in the order replica, data 0.062 s"


@pytest.mark.parametrize(
    ("mesh", "said"),
    [
        ({"data": 8, "replica": 8}, [TOLD]),
        ({"replica": 8, "data": 8}, []),
        ({"data": 64, "replica": 1}, []),
    ],
    ids=["gathered between hosts", "gathered within", "one axis"],
)
def test_what_moves_most_belongs_on_the_links(mesh, said):
    """HSDP on eight hosts: parameters are gathered over data, and a shard is exchanged between replicas."""
    seen = [moved("all-gather", "data", 18 * 10**9), moved("reduce-scatter", "data", 10**9)]
    seen += [moved("all-reduce", "replica", 10**9)] if mesh["replica"] > 1 else []
    assert [*in_another_order(seen, mesh, read_target("gpu:h200:8x8"))] == said
