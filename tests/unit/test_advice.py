"""Hints behind findings: each stands behind the amount that its cause has, and behind no other."""

from types import SimpleNamespace

import pytest
from jax.sharding import PartitionSpec

from meshproof.contract import Communication
from meshproof.hlo import Collective
from meshproof.measures.layout import LeafLayout, Shard
from meshproof.measures.traffic import compare_traffic
from suites.advice import (
    advised,
    apart,
    either,
    hint,
    in_groups,
    lacking,
    multiplied,
    reduced_bytes,
    several,
    together,
)
from suites.test_state_bytes_equal_theory import furthest

LEAVES = (
    LeafLayout("table", (16, 16), 4, "", (), PartitionSpec("data")),
    LeafLayout("kernel", (16, 32), 4, "", (), PartitionSpec("data")),
)
OVER = ("data",)
NAMES = ("scale", "shift")


def test_leaves_of_one_size_cannot_be_told_apart():
    """Two of four norms: whichever they are, bytes do not say."""
    norms = tuple(LeafLayout(f"norm_{at}", (32,), 4, "", (), PartitionSpec()) for at in range(5))
    assert together(256, norms, OVER) == "norm_0 and norm_1 (or others as large)"
    assert together(1024, LEAVES, OVER) == "table"
    assert either([leaf.path for leaf in norms]) == "norm_0 or norm_1 or norm_2 or 2 more"


def test_a_gradient_that_is_summed_whole_is_not_missing():
    """Where an all-reduce has as much too many, it is told so; where it has not, nothing reduces it."""
    told = {1024: "all-reduced over data and not scattered", 2048: "all-reduced over data, twice, and not scattered"}
    for excess, words in [*((size, f"which is {how}") for size, how in told.items()), (8, "which nothing reduces")]:
        seen = [Collective("all-reduce", OVER, 1, 1, 4 + excess, "f32", "all-reduce", "other")]
        seen += [Collective("reduce-scatter", OVER, 1, 1, 2048, "f32", "reduce-scatter", "other")]
        budget = [Communication("all-reduce", OVER, "metrics", 4)]
        budget += [Communication("reduce-scatter", OVER, "gradients", 3072)]
        lanes = [lane for lane in compare_traffic(seen, budget) if not lane.exact]
        [scatter] = [lane for lane in lanes if lane.lane[0] == "reduce-scatter"]
        assert f"the gradient of table, {words}" in lacking("step", scatter, lanes, LEAVES, ["loss"])


def said(*pairs):
    """The hints of lanes, each with its operation, its bytes seen and its bytes budgeted."""
    seen = [Collective(what, OVER, 1, 1, size, "f32", what, "other") for what, size, _ in pairs if size]
    budget = [Communication(what, OVER, "gradients", size) for what, _, size in pairs if size]
    lanes = [lane for lane in compare_traffic(seen, budget) if not lane.exact]
    return [hint(lane, lanes, LEAVES, {"data"}) for lane in lanes]


@pytest.mark.parametrize(
    ("lanes", "words"),
    [
        ([("all-reduce", 4096, 3072)], "as much as table once more: of a parameter that is used several times"),
        ([("all-gather", 5120, 3072)], "as much as kernel once more: constrained to its layout in use"),
        ([("all-gather", 9216, 3072)], "as much as all parameters twice more: constrained"),
        ([("all-gather", 9216, 3072)], "as jnp.vdot(x, x), where jnp.sum(x * x) gathers nothing"),
        (
            [("all-reduce", 6144, 3072)],
            "as much as all parameters once more: of a parameter that is used several times",
        ),
        ([("all-reduce", 3080, 3072)], "list Communication('all-reduce', ('data',), 'metrics', 8)"),
        ([("all-reduce", 3076, 4), ("reduce-scatter", 0, 3072)], "missing from the reduce-scatter"),
    ],
)
def test_an_amount_points_at_its_cause(lanes, words):
    """A table that is reduced twice, a parameter gathered twice, norms, gradients that are summed whole."""
    assert words in said(*lanes)[0]


@pytest.mark.parametrize(
    ("excess", "words"), [(28, "as much as scale and shift 7 times more"), (16, "as a metric of the whole batch")]
)
def test_where_nothing_is_split_no_norm_is(excess, words):
    """Scalars that a loop uses, each with a gradient of its own; or numbers of no parameter."""
    leaves = LEAVES if "metric" in words else [LeafLayout(path, (), 2, "", (), PartitionSpec()) for path in NAMES]
    [lane] = compare_traffic(
        [Collective("all-reduce", OVER, 1, 1, 3072 + excess, "f32", "all-reduce", "other")],
        [Communication("all-reduce", OVER, "gradients", 3072)],
    )
    assert words in hint(lane, [lane], (*leaves, *LEAVES), set())


@pytest.mark.parametrize(
    ("excess", "words"),
    [
        (1000 + 300, "first and second"),
        (1000 + 300 + 70 + 50, "all parameters but fifth"),
        (1000 + 50 + 7, "all parameters but second and third"),
        (1000 + 70 + 50 + 7, "all parameters but second"),
        (1001, ""),
    ],
)
def test_parameters_that_are_used_twice_have_so_many_bytes_together(excess, words):
    """Named in the fewest words."""
    sizes = {"first": 1000, "second": 300, "third": 70, "fourth": 50, "fifth": 7}
    leaves = tuple(LeafLayout(path, (size,), 1, "", (), PartitionSpec()) for path, size in sizes.items())
    assert together(excess, leaves, ("data",)) == words


@pytest.mark.parametrize(
    ("excess", "tensors", "words"),
    [
        (720, 6, "as much as theta 6 times or bias 5 times more:"),
        (724, 6, "6 arrays are reduced, and there are 3 parameters:"),
        (724, 3, ""),
    ],
)
def test_a_vector_that_is_used_many_times_is_told(excess, tensors, words):
    """By its bytes, or by how many arrays are reduced."""
    sizes = {"kernel": (100, 100), "theta": (30,), "bias": (36,)}
    leaves = tuple(LeafLayout(path, shape, 4, "", (), PartitionSpec()) for path, shape in sizes.items())
    reduced = Collective("all-reduce", OVER, 1, tensors, 40_264 + excess, "f32", "all-reduce", "backward")
    [lane] = compare_traffic([reduced], [Communication("all-reduce", OVER, "gradients", 40_264)])
    assert hint(lane, [lane], leaves, set()).startswith(words) and several(excess, lane, leaves) == words


@pytest.mark.parametrize(
    "lanes", [[("all-reduce", 3072 + 500, 3072)], [("all-gather", 1024, 3072)], [("all-to-all", 4096, 3072)]]
)
def test_another_amount_points_at_nothing(lanes):
    """No parameter is as large, fewer bytes move than are budgeted, or nothing is reduced or gathered."""
    assert said(*lanes) == [""]


def test_what_moves_wide_behind_a_promise_of_less_is_cast_too_late():
    """The whole of it in float32, and no parameter that is used twice."""
    budget = [Communication("all-gather", OVER, "parameters", 1536, "bfloat16")]
    [lane] = compare_traffic([Collective("all-gather", OVER, 1, 1, 3072, "f32", "all-gather", "other")], budget)
    assert hint(lane, [lane], LEAVES, {"data"}).startswith("it stands before the cast: cast first")


def test_one_of_several_that_moves_wide_is_cast_too_late():
    """The others have the 16 bits that the line names."""
    budget = [Communication("all-gather", OVER, "parameters", 1536, "bfloat16")]
    moved = [
        Collective("all-gather", OVER, 1, 1, size, "f32", "all-gather", phase, widened)
        for size, phase, widened in ((2048, "other", 2048), (1024, "backward", 0))
    ]
    [lane] = compare_traffic(moved, budget, {"bf16"})
    assert hint(lane, [lane], LEAVES, {"data"}).startswith("it stands before the cast: cast first")


def test_a_line_of_16_bits_names_its_dtype():
    """Else what moves counts as float32, twice as much as is budgeted."""
    moved = [Collective("all-reduce", OVER, 1, 1, 512, "bf16", "all-reduce", "other")]
    [lane] = compare_traffic(moved, [Communication("all-reduce", OVER, "activations", 512)], {"bf16"})
    assert "such a line names its dtype" in hint(lane, [lane], LEAVES, set())


def test_what_is_summed_over_more_axes_is_missing_from_a_scatter():
    """A compiler that does not scatter a gradient over one axis sums it whole over both."""
    table = LeafLayout("table", (16, 16), 4, "", (Shard(0, ((0, 4), (0, 8)), (4, 8), 128),), ("model", "data"))
    both = ("replica", "data")
    budget = [Communication("all-reduce", both, "metrics", 4), Communication("reduce-scatter", OVER, "gradients", 512)]
    moved = [Collective("all-reduce", both, 1, 1, 4 + 256, "f32", "all-reduce", "other")]
    moved += [Collective("reduce-scatter", OVER, 1, 1, 256, "f32", "reduce-scatter", "other")]
    lanes = [lane for lane in compare_traffic(moved, budget) if not lane.exact]
    summed, scattered = sorted(lanes, key=lambda lane: lane.lane)
    assert "missing from the reduce-scatter" in hint(summed, lanes, (table,), {"data"})
    told = lacking("step", scattered, lanes, (table,), ["loss"])
    assert told == "as much as the gradient of table, which is all-reduced over replica×data and not scattered"


def test_other_axes_split_a_gradient_as_its_parameter():
    """What a device reduces over data is split over model alone."""
    kernel = LeafLayout("kernel", (16, 32), 4, "", (Shard(0, ((0, 2), (0, 16)), (2, 16), 128),), ("data", "model"))
    assert [reduced_bytes(kernel, axes) for axes in (("data",), ("model",), ("replica",))] == [1024, 256, 128]


@pytest.mark.parametrize(
    ("seen", "phases", "words"),
    [
        (3072 + 1536 + 8, ("other", "backward"), "one number less: one of loss, rows may be that of a device's own"),
        (3072 + 1536 + 4, ("other", "backward"), "2 numbers less: one of loss, rows"),
        (3072 + 12, ("forward", "other"), "none is reduced over data in the backward pass"),
        (3072 + 12, ("forward", "backward"), ""),
        (3072 + 1536 + 12 - 1024, ("other",), "as much as the gradient of table, which nothing reduces over data"),
        (3072 + 1536 + 12, ("other",), ""),
    ],
)
def test_what_is_missing_points_at_its_cause(seen, phases, words):
    """A scalar of one device, two of them, Megatron's backward sum, a gradient; nothing where nothing lacks."""
    moved = [Collective("all-reduce", OVER, 1, 1, seen // len(phases), "f32", "all-reduce", each) for each in phases]
    of = {"gradients": 3072, "activations": 1536, "metrics": 12}
    [lane] = compare_traffic(moved, [Communication("all-reduce", OVER, what, size) for what, size in of.items()])
    told = lacking("step", lane, [lane], LEAVES, ["loss", "rows"])
    assert words in told if words else not told


def test_what_is_summed_in_groups_is_not_missing():
    """Among four devices of eight, as much as the axis lacks; another amount, or another axis's part, is something
    else."""
    for part, size, words in (
        ("data:(2)4", 3072, "as much is reduced over data:(2)4, groups of its devices"),
        ("data:(2)4", 1024, ""),
        ("model:(2)4", 3072, ""),
    ):
        seen = [Collective("all-reduce", OVER, 1, 1, 4, "f32", "all-reduce", "other")]
        budget = [Communication("all-reduce", OVER, "gradients", 3072), Communication("all-reduce", OVER, "metrics", 4)]
        [lane] = compare_traffic(seen, budget)
        groups = Collective("all-reduce", (part,), 1, 1, size, "f32", "all-reduce", "other")
        told = in_groups(lane, [*seen, groups])
        assert words in told if words else not told


def test_what_is_gathered_in_groups_is_no_sum():
    """Nothing is reduced by it."""
    [lane] = compare_traffic([], [Communication("all-gather", OVER, "activations", 512)])
    groups = Collective("all-gather", ("data:(2)4",), 1, 1, 512, "f32", "all-gather", "other")
    assert in_groups(lane, [groups]) == "as much moves over data:(2)4, groups of its devices"


def test_a_sum_that_the_forward_pass_lacks_is_not_looked_for_behind_it():
    """As that of an attention's heads, or of a vocabulary in parts."""
    moved = [Collective("all-reduce", OVER, 1, 1, 512, "f32", "all-reduce", "other")]
    [lane] = compare_traffic(moved, [Communication("all-reduce", OVER, "activations", 1536)])
    told = lacking("forward", lane, [lane], LEAVES, ["loss"])
    assert told.endswith("a part of a sum or of a maximum: jax.lax.psum(value, ('data',)), or pmax")


def test_a_loop_that_the_data_end_is_told():
    """Nobody knows how often it reduces."""
    [lane] = compare_traffic(
        [Collective("all-reduce", OVER, None, None, None, "pred", "all-reduce", "other")],
        [Communication("all-reduce", OVER, "metrics", 4)],
    )
    layouts = SimpleNamespace(parameters=LEAVES, optimizer_state=LEAVES)
    observation = SimpleNamespace(
        start=SimpleNamespace(layouts=layouts), programs=SimpleNamespace(step=SimpleNamespace(collectives=()))
    )
    [told] = advised("step", [lane], observation)
    assert "saw an unknown number" in told and "in jax.shard_map each device loops for its own rows" in told


@pytest.mark.parametrize(
    ("gathered", "words"), [(1024, "does not come back to the devices whose it is"), (0, "nothing gathers them either")]
)
def test_activations_that_no_gradient_comes_back_to_are_told(gathered, words):
    """Behind a stop_gradient, or because they were never gathered. They are no gradient of a table that is as large."""
    moved = [Collective("all-gather", OVER, 1, 1, gathered, "f32", "all-gather", "forward")] if gathered else []
    budget = [Communication(what, OVER, "activations", 1024) for what in ("all-gather", "reduce-scatter")]
    lanes = [lane for lane in compare_traffic(moved, budget) if not lane.exact]
    assert words in lacking("step", lanes[-1], lanes, LEAVES, ["loss"])


@pytest.mark.parametrize(
    ("moved", "words"),
    [
        ({"data": 4096, "context": 1024}, "reduced as 1,024 bytes over context and 4,096 bytes over data, where it is"),
        ({"data": 4096}, ""),
        ({"data": 4096, "context": 1000}, ""),
    ],
)
def test_a_copy_that_is_broadcast_first_is_told(moved, words):
    """Of a table that is reduced over one axis as copies and over another as it is; of nothing else."""
    both = ("data", "context")
    seen = [Collective("all-reduce", (axis,), 1, 1, size, "f32", "all-reduce", "other") for axis, size in moved.items()]
    seen.append(Collective("all-reduce", both, 1, 1, 3072, "f32", "all-reduce", "other"))
    budget = [Communication("all-reduce", both, "gradients", 4096)]
    lane = next(lane for lane in compare_traffic(seen, budget) if lane.lines)
    told = apart(lane, LEAVES, seen)
    assert words in told if words else not told


@pytest.mark.parametrize(
    ("times", "words"),
    [
        (2.01, "data has 2 devices: a sum over data (psum)"),
        (8.0, "data×model has 8 devices: a sum"),
        (0.25, "model has 4 devices: a mean over model (pmean)"),
        (3.0, ""),
        (1.0, ""),
    ],
)
def test_a_factor_names_its_axis(times, words):
    """Where an axis, or several, have as many devices."""
    told = multiplied(times, {"data": 2, "model": 4, "stage": 1})
    assert words in told if words else not told


def test_bytes_that_are_too_few_are_no_other_arrays():
    """Of a state that two members show, or one by two names; what is too many, arrays hold that no member shows."""
    sizes = [(SimpleNamespace(path="w", bytes_per_device=64), 64)]
    assert furthest(sizes, -64).endswith("what two members show, or one by two names, was counted twice")
    assert "the rest is in ema: declare" in furthest(sizes, 64, ["ema"])
