"""What the layout of a leaf says of it: that it is a moment, or a vector that may be gathered."""

from dataclasses import replace

from jax.sharding import PartitionSpec

from meshproof.contract import Communication
from meshproof.measures.layout import LeafLayout
from suites.raveled import moments
from suites.test_each_axis_carries_its_own import moves_vectors
from tests.unit.test_advice import LEAVES


def test_vectors_alone_may_be_gathered_over_both_axes():
    """A norm's scale, in a stack of layers too, by its size; no kernel, and nothing that no contract lays out."""
    both = ("data", "model")
    scales = LeafLayout("scales", (4, 32), 4, "", (), PartitionSpec(None, both))
    kernels = LeafLayout("kernels", (4, 32, 32), 4, "", (), PartitionSpec(None, "data", "model"))
    open_ = LeafLayout("open", (32,), 4, "", ())
    line = Communication("all-gather", both, "parameters", 1024)
    assert moves_vectors(line, [scales, kernels, open_])
    assert not moves_vectors(replace(line, bytes=4096), [scales, kernels, open_])
    assert not moves_vectors(line, [replace(scales, shape=(5, 32)), kernels]), "a matrix of as many numbers"
    assert not moves_vectors(replace(line, payload="activations"), [scales, kernels])


def test_a_moment_is_found_by_the_end_of_its_path():
    """Both of Adam's are of one parameter, wherever optax keeps them; a counter or a row's statistics are of none."""
    state = [LeafLayout(path, (16, 16), 4, "", (), PartitionSpec("data")) for path in ("1/0/mu/table", "1/0/nu/table")]
    others = [
        LeafLayout(path, shape, 4, "", (), PartitionSpec()) for path, shape in [("count", ()), ("v/table", (16,))]
    ]
    assert moments(LEAVES, [*state, *others]) == {"table": (state[1], {"data"})}
    assert moments(LEAVES, [LEAVES[0]]) == {"table": (LEAVES[0], {"data"})}, "a path of the parameter's own is one, too"
