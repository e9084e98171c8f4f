"""Which parameters are gathered once more, by the bytes that are too many."""

from jax.sharding import PartitionSpec

from meshproof.measures.layout import LeafLayout, Shard
from suites.advice import gathers_more

DATA = ("data",)


def test_what_is_split_over_other_axes_is_gathered_in_part():
    """Of a table over data and model, half lies on a device; by chance several have an activation's bytes together."""
    both = [Shard(0, (slice(0, 2), slice(0, 8)), (2, 8), 64)]
    every = tuple(LeafLayout(f"w{size}", (size, 16), 4, "", (), PartitionSpec("data")) for size in (16, 32))
    table = LeafLayout("table", (16, 16), 4, "", both, PartitionSpec("data", "model"))
    whole = LeafLayout("scale", (128,), 4, "", (), PartitionSpec())
    assert gathers_more(512, (table, whole), DATA) == "table once"
    assert gathers_more(1024, (table, whole), DATA) == "table twice"
    assert gathers_more(2 * (1024 + 2048), every, DATA) == "all parameters twice"
    others = tuple(LeafLayout(f"w{at}", (at, 8), 4, "", (), PartitionSpec("data")) for at in (3, 5, 7))
    assert (
        gathers_more(32 * 8, others, DATA) == "all parameters but w7 once"
        and gathers_more(2 * 32 * 8, others, DATA) == ""
    )
