"""Hints behind findings: each stands behind the amount that its cause has, and behind no other."""

import pytest
from jax.sharding import PartitionSpec

from meshproof.contract import Communication
from meshproof.hlo import Collective
from meshproof.measures.layout import LeafLayout
from meshproof.measures.traffic import compare_traffic
from suites.advice import hint
from suites.test_zero_reduces_and_gathers_once import moments

LEAVES = (
    LeafLayout("table", (16, 16), 4, "", (), PartitionSpec("data")),
    LeafLayout("kernel", (16, 32), 4, "", (), PartitionSpec("data")),
)
OVER = ("data",)


def said(*pairs):
    """The hints of lanes, each with its operation, its bytes seen and its bytes budgeted."""
    seen = [Collective(what, OVER, 1, 1, size, "f32", what, "other") for what, size, _ in pairs if size]
    budget = [Communication(what, OVER, "gradients", size) for what, _, size in pairs if size]
    lanes = [lane for lane in compare_traffic(seen, budget) if not lane.exact]
    return [hint(lane, lanes, LEAVES) for lane in lanes]


@pytest.mark.parametrize(
    ("lanes", "words"),
    [
        ([("all-reduce", 4096, 3072)], "as much as table once more: of a parameter that is used twice"),
        ([("all-gather", 5120, 3072)], "as much as kernel once more: constrained to its layout in use"),
        ([("all-reduce", 3080, 3072)], "list Communication('all-reduce', ('data',), 'metrics', 8)"),
        ([("all-reduce", 3076, 4), ("reduce-scatter", 0, 3072)], "missing from the reduce-scatter"),
    ],
)
def test_an_amount_points_at_its_cause(lanes, words):
    """A table that is reduced twice, a parameter gathered twice, norms, gradients that are summed whole."""
    assert words in said(*lanes)[0]


@pytest.mark.parametrize(
    "lanes", [[("all-reduce", 3072 + 500, 3072)], [("all-gather", 1024, 3072)], [("all-to-all", 4096, 3072)]]
)
def test_another_amount_points_at_nothing(lanes):
    """No parameter is as large, fewer bytes move than are budgeted, or nothing is reduced or gathered."""
    assert said(*lanes) == [""]


def test_a_moment_is_found_by_the_end_of_its_path():
    """Both of Adam's are of one parameter, wherever optax keeps them; a counter or a row's statistics are of none."""
    state = [LeafLayout(path, (16, 16), 4, "", (), PartitionSpec("data")) for path in ("1/0/mu/table", "1/0/nu/table")]
    others = [
        LeafLayout(path, shape, 4, "", (), PartitionSpec()) for path, shape in [("count", ()), ("v/table", (16,))]
    ]
    assert moments(LEAVES, [*state, *others]) == {"table": (state[1], {"data"})}
