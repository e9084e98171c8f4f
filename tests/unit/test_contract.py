"""Contracts and canonical trees."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from jax.sharding import PartitionSpec

from meshproof.cases import Case
from meshproof.contract import Communication, Contract, leaves, nest, spec_axes
from meshproof.hlo import Collective
from meshproof.measures.traffic import between_examples, compare_traffic
from suites.test_bytes_on_the_wire import least_bytes


def test_the_first_pattern_that_matches_wins():
    """Leaf paths are matched by glob patterns in the order of the contract."""
    contract = Contract(parameters={"*/bias": PartitionSpec(), "*": PartitionSpec("data")})
    assert contract.spec("parameters", "dense_0/bias") == PartitionSpec()
    assert contract.spec("parameters", "dense_0/kernel") == PartitionSpec("data")


def test_an_unmatched_leaf_is_an_error():
    """A leaf that no pattern matches is named, with the patterns and what to do."""
    contract = Contract(parameters={"*/bias": PartitionSpec()})
    with pytest.raises(LookupError, match=r"'dense_0/kernel'.*\*/bias.*expected one that matches"):
        contract.spec("parameters", "dense_0/kernel")


def test_the_axes_of_a_spec_stand_in_its_order():
    """A dimension is split over no axis, one, or several in turn; what a name holds is no list of letters."""
    assert spec_axes(PartitionSpec(None, "stage", ("replica", "data"), None)) == ("stage", "replica", "data")
    assert spec_axes((("model", "data"), None, "stage")) == ("model", "data", "stage")
    assert spec_axes(PartitionSpec()) == spec_axes((None, ())) == ()


def test_declarations_of_nothing_are_named():
    """A pattern that is no leaf's first match is named, also where there are no leaves at all."""
    contract = Contract(parameters={"*/bias": PartitionSpec(), "*": PartitionSpec("data")})
    assert contract.unmatched("parameters", ["dense_0/bias"]) == ["*"]
    assert contract.unmatched("parameters", ["dense_0/bias", "dense_0/kernel"]) == []
    assert contract.unmatched("parameters", []) == ["*", "*/bias"]


def test_leaves_and_nest_are_inverse():
    """A canonical tree survives being flattened."""
    tree = {"a": {"b": 1, "c": {"d": 2}}, "e": 3}
    assert nest(dict(leaves(tree))) == tree


def test_lists_of_arrays_are_refused():
    """A list where a dict should be is named by its path."""
    import numpy as np

    with pytest.raises(TypeError, match="a/b is a list of arrays"):
        dict(leaves({"a": {"b": [np.zeros(2)]}}))


@pytest.mark.parametrize(
    ("promises", "words"),
    [
        ({"parameters": PartitionSpec("data")}, r"Contract.parameters is .*; expected a dict from path patterns"),
        ({"batch": {"*": "data"}}, r"Contract.batch\['\*'\] is 'data'; expected a PartitionSpec"),
        ({"step": ("all-reduce",)}, "Contract.step holds 'all-reduce'; expected entries of Communication"),
    ],
)
def test_odd_promises_are_refused(promises, words):
    """What is no layout or no budget is refused where it is written, by name."""
    with pytest.raises(TypeError, match=words):
        Contract(**promises)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (("all_reduce", ("data",), "gradients", 8), "lists 'all_reduce' .* expected one of .*'all-reduce'"),
        (("all-reduce", ("data",), "gradients", 8, "half"), "lists 'half' .* expected .*'bfloat16'"),
        (("all-reduce", ("data",), "moments", 8), "lists 'moments' .* expected one of .*'gradients'"),
    ],
)
def test_words_that_no_clause_knows_are_refused(line, words):
    """A budget is judged by what its lines say that they move: a word of one's own would hide its line."""
    with pytest.raises(ValueError, match=words):
        Contract(step=(Communication(*line),))


def test_dtypes_are_known_and_found_by_part_and_path():
    """An unknown one is refused where it is written; the first pattern wins, and what none matches is float32."""
    contract = Contract(dtypes={"parameters/*": "bfloat16", "*/mu/*": "float16"})
    assert contract.dtype("parameters", "dense/kernel") == "bfloat16"
    assert contract.dtype("optimizer_state", "mu/dense/kernel") == "float16"
    assert contract.dtype("optimizer_state", "nu/dense/kernel") == "float32"
    assert contract.unmatched("dtypes", ["parameters/dense/kernel"]) == ["*/mu/*"]
    with pytest.raises(ValueError, match=r"Contract.dtypes\['\*'\] is 'half'; expected one of .*'bfloat16'"):
        Contract(dtypes={"*": "half"})


def test_a_step_has_an_evaluation():
    """As often as none, gradients are computed by no step that trains."""
    with pytest.raises(ValueError, match=r"Contract.evaluations is 0; expected a whole number of 1 or more"):
        Contract(evaluations=0)


def test_axes_may_stand_in_any_order():
    """A budget that names an axis of one device, or the minor axis first, is the budget that a program can show."""
    lines = [("model", "data"), ("data", "alone"), ("alone",), ("model:(2)2", "data")]
    budget = tuple(Communication("all-reduce", axes, "gradients", 8) for axes in lines)
    strategy = SimpleNamespace(contract=Contract(step=budget))
    contract = Case("odd", strategy, {"data": 2, "alone": 1, "model": 4}, "cpu").contract
    assert [line.axes for line in contract.step] == [("data", "model"), ("data",), ("data", "model:(2)2")]
    assert contract.forward is None


def entry(**changes):
    """A census entry."""
    fields = {
        "operation": "all-reduce",
        "axes": ("data",),
        "executions": 1,
        "tensors": 1,
        "bytes": 8,
        "dtype": "f32",
        "realized_as": "all-reduce",
        "phase": "backward",
    }
    return Collective(**(fields | changes))


@pytest.mark.parametrize(
    ("seen", "ratio"),
    [([], 0.0), ([entry()], 1.0), ([entry(), entry(phase="other")], 2.0), ([entry(bytes=None)], float("inf"))],
)
def test_traffic_is_the_sum_over_a_lane(seen, ratio):
    """Bytes are summed by operation and axes; an unknown amount is never taken for the budgeted one."""
    [traffic] = compare_traffic(seen, [Communication("all-reduce", ("data",), "gradients", 8)])
    assert traffic.ratio == ratio
    assert traffic.exact == (ratio == 1.0)


def test_unlisted_traffic_has_no_ratio():
    """What the budget does not list is infinitely more than allowed."""
    [traffic] = compare_traffic([entry(axes=("model",))], [])
    assert traffic.ratio == float("inf") and not traffic.lines


@pytest.mark.parametrize(
    ("entries", "dtype", "said"),
    [
        ([{"dtype": "bf16", "bytes": 8}], "bfloat16", ""),
        ([{"widened": 16, "bytes": 16}], "bfloat16", ""),
        ([{"bytes": 16}], "bfloat16", "in bfloat16: expected 8 bytes, saw 0"),
        ([{"dtype": "bf16", "bytes": 8}], "float32", "in float32: expected 8 bytes, saw 0"),
        ([{"dtype": "bf16", "bytes": 8}, {"bytes": 4}], "bfloat16", ""),
        ([{"dtype": "bf16", "bytes": 16}], "bfloat16", "in bfloat16: expected 8 bytes, saw 16"),
        ([{"dtype": "bf16", "bytes": None}], "bfloat16", "saw an unknown number"),
    ],
)
def test_a_dtype_is_that_of_what_moves(entries, dtype, said):
    """What XLA:CPU has widened counts as what it was; a line without a dtype may move in any."""
    lines = [Communication("all-reduce", ("data",), "gradients", 8, dtype)]
    lines += [Communication("all-reduce", ("data",), "metrics", 4)]
    [traffic] = compare_traffic([entry(**each) for each in entries], lines)
    assert said in traffic.mistyped and bool(said) == bool(traffic.mistyped)


@pytest.mark.parametrize(
    ("widened", "dtype", "told"),
    [
        (0, "bfloat16", "saw 31, 5 of them in bfloat16, 26 of them in float32 ("),
        (20, "bfloat16", "saw 21, 15 of them in bfloat16, 6 of them in float32 ("),
        (26, "bfloat16", "saw 18, all of them in bfloat16 ("),
        (0, None, "saw 31 (written as"),
    ],
)
def test_a_lane_whose_line_names_a_dtype_says_in_which_it_moved(widened, dtype, told):
    """Else one looks for a collective too many where one moves in a wider dtype."""
    seen = [entry(bytes=26, widened=widened), entry(dtype="bf16", bytes=5)]
    [traffic] = compare_traffic(seen, [Communication("all-reduce", ("data",), "gradients", 8, dtype)])
    assert told in str(traffic)


BOTH = [("data", "gradients", 100), ("model", "gradients", 60), ("data", "metrics", 4), ("model", "metrics", 4)]


@pytest.mark.parametrize(
    ("seen", "budget", "exact"),
    [
        ({"data": 40, "data model": 64}, BOTH, True),
        ({"data": 104, "model": 64}, BOTH, True),
        # As many bytes, but not of the same payload: no tensor is both.
        ({"data": 36, "data model": 64}, [("data", "gradients", 100), ("model", "activations", 64)], False),
        # One of the lanes would not be exact.
        ({"data": 44, "data model": 64}, BOTH, False),
        ({"data": 40, "data model": 64, "model": 4}, BOTH, False),
        # No line for an axis that it runs over.
        ({"data": 40, "data model": 64}, [("data", "gradients", 100), ("data", "metrics", 4)], False),
        ({"data": 40, "data model": None}, BOTH, False),
        # A line of its own for a part of it, and not for another.
        ({"data": 40, "data model": 72}, [*BOTH, ("data model", "metrics", 8)], True),
        ({"data": 40, "data model": 76}, [*BOTH, ("data model", "metrics", 8)], False),
        ({"data model stage": 8}, [(axis, "gradients", 8) for axis in ("data", "model", "stage")], True),
    ],
)
def test_merged_reductions_are_taken_apart(seen, budget, exact):
    """One all-reduce over two axes is one over each, if it is all that the budget lists there and is not seen."""
    lines = [Communication("all-reduce", tuple(axes.split()), payload, amount) for axes, payload, amount in budget]
    traffic = compare_traffic([entry(axes=tuple(axes.split()), bytes=size) for axes, size in seen.items()], lines)
    assert all(lane.exact for lane in traffic) == exact


@pytest.mark.parametrize(("dtype", "exact"), [("bfloat16", True), (None, False), ("float32", False)])
def test_a_merged_reduction_keeps_the_dtype_that_its_lines_name(dtype, exact):
    """Over two axes in bfloat16, where a contract computes in that: as many bytes as it moves, if its lines say so."""
    lines = [Communication("all-reduce", (axis,), "gradients", 64, dtype) for axis in ("data", "model")]
    merged = entry(axes=("data", "model"), bytes=64, dtype="bf16")
    assert all(lane.exact for lane in compare_traffic([merged], lines, {"bf16"})) == exact


def test_a_scatter_in_place_of_a_budgeted_sum_counts_if_the_compiler_made_it():
    """XLA may scatter what a budget says is summed; a reduce-scatter that somebody wrote is another operation."""
    lines = [Communication("all-reduce", ("data",), "gradients", 8)]
    scattered = {"operation": "reduce-scatter", "realized_as": "reduce-scatter-start"}
    assert [lane.exact for lane in compare_traffic([entry(**scattered, derived=True)], lines)] == [True]
    assert [lane.exact for lane in compare_traffic([entry(**scattered)], lines)] == [False, False]
    lines.append(Communication("reduce-scatter", ("data",), "gradients", 8))
    both = [entry(**scattered, derived=True), entry()]
    assert [lane.exact for lane in compare_traffic(both, lines)] == [True, True]


def test_a_sum_of_shards_is_the_budgeted_sum_of_gradients():
    """As of a table of which each device reads a part of the rows; where the budget gathers as much, it is a gather."""
    shards = entry(operation="all-gather", realized_as="dynamic-update-slice + all-reduce")
    summed = Communication("all-reduce", ("data",), "gradients", 8)
    [lane] = compare_traffic([shards], [summed])
    assert lane.lane[0] == "all-reduce" and lane.exact
    for others in (
        [replace(summed, bytes=16), Communication("all-gather", ("data",), "parameters", 8)],
        [replace(summed, payload="metrics")],
    ):
        lanes = compare_traffic([shards], others)
        assert ("all-gather", 8) in [(lane.lane[0], lane.seen) for lane in lanes]


@pytest.mark.parametrize("written", ["all-reduce + dynamic-slice", "all-reduce-start + dynamic-slice"])
def test_a_sum_of_which_each_keeps_a_slice_is_the_budgeted_sum(written):
    """ZeRO-1's, synchronous or not; where the budget scatters, it is the scatter."""
    sliced = entry(operation="reduce-scatter", realized_as=written)
    for operation in ("all-reduce", "reduce-scatter"):
        [lane] = compare_traffic([sliced], [Communication(operation, ("data",), "gradients", 8)])
        assert lane.exact and lane.lane == (operation, ("data",))


@pytest.mark.parametrize(
    ("written", "budget", "least"),
    [
        ("all-reduce + dynamic-slice", {"all-reduce": 800}, 1400),
        ("all-reduce + dynamic-slice", {"all-reduce": 80}, 770),
        ("all-reduce + dynamic-slice", {"reduce-scatter": 800}, 700),
        ("fusion all-reduce-scatter", {"all-reduce": 800}, 700),
        ("reduce-scatter", {"all-reduce": 800}, 700),
    ],
)
def test_what_the_budget_sums_may_be_sent_as_a_sum(written, budget, least):
    """No more of it than the budget says, and none that sends less: it would outweigh another's excess."""
    lines = tuple(Communication(operation, ("data",), "gradients", size) for operation, size in budget.items())
    case = SimpleNamespace(contract=Contract(step=lines), mesh={"data": 8})
    scattered = entry(operation="reduce-scatter", realized_as=written, bytes=800)
    assert [*least_bytes(case, [scattered])] == [least]


def test_constants_are_no_data():
    """What each device could compute is in no lane; as many bytes of anything else are."""
    gathered = {"operation": "all-gather", "bytes": 128}
    assert compare_traffic([entry(**gathered, constant=True)], []) == ()
    assert len(compare_traffic([entry(**gathered)], [])) == 1


def test_what_a_loss_compares_has_a_gradient():
    """As many bytes are reduce-scattered in a step as the forward pass gathers, or permuted again; of labels none."""
    gathered = Communication("all-gather", ("data",), "activations", 64)
    back = Communication("reduce-scatter", ("data",), "activations", 64)
    permuted = Communication("collective-permute", ("data",), "activations", 64)
    assert between_examples([gathered], [gathered, back]) == {
        ("all-gather", ("data",), "activations"),
        ("reduce-scatter", ("data",), "activations"),
    }
    assert between_examples([permuted], [permuted] * 2) == {("collective-permute", ("data",), "activations")}
    for step in ([gathered], [gathered, back, back], [back, back], [gathered, gathered]):
        assert between_examples([gathered], step) == set()
    for step in ([], [permuted], [permuted] * 3):
        assert between_examples([permuted], step) == set()


def test_what_a_loss_mixes_has_none():
    """A step moves as many bytes of examples as a forward pass."""
    for operation in ("all-gather", "collective-permute"):
        mixed = Communication(operation, ("data",), "examples", 64)
        assert between_examples([mixed], [mixed]) == {(operation, ("data",), "examples")}
        for step in ([], [mixed, mixed]):
            assert between_examples([mixed], step) == set()
