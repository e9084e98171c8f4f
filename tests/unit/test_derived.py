"""What must move by shapes and layouts: it is what the book's budgets say, and no other budget passes for it."""

from dataclasses import replace
from math import prod
from types import SimpleNamespace

import pytest
from jax.sharding import PartitionSpec

from meshproof.cases import Case, load_cases
from meshproof.contract import leaves
from meshproof.hlo import Collective
from meshproof.judging.judge import Judge
from meshproof.judging.records import Record
from meshproof.measures.layout import LeafLayout
from suites.applicability import axes_of, data_axes, exchanges_tokens
from suites.derived import theory
from suites.raveled import raveled
from suites.test_sharding_lowers_the_peak import is_data_parallel_twin
from suites.twins import share_truth
from tests.implementations.odd import odd

DERIVED = [case for case in load_cases("reference_impl") if data_axes(case)]
EXCHANGING = [case for case in DERIVED if exchanges_tokens(case)]
NARROW = [case for case in DERIVED if case.contract.compute_dtype == "bfloat16"]


def promising(case, single_device=None, **promises):
    """The case, with another contract, and its truth, unless its own run on one device is that."""
    contract, truth = replace(case.contract, **promises), None if single_device else case.strategy.truth
    network = case.strategy.network
    strategy = SimpleNamespace(network=network, contract=contract, truth=truth, single_device=single_device)
    return Case(case.id, strategy, case.mesh, case.target)


def problems(case, dtype="f32", width=4, single_device=None):
    """What theory says of a case whose step moves, in this dtype, as many elements as its budget lists in float32."""
    budget = tuple(line for line in case.contract.step if line.payload != "metrics")
    moved = [
        Collective(line.operation, line.axes, 1, 1, line.bytes * width // 4, dtype, line.operation, "other")
        for line in budget
    ]
    parameters = [
        LeafLayout(path, shape, 4, "", (), tuple(case.contract.spec("parameters", path)))
        for path, shape in leaves(case.strategy.network.shapes)
    ]
    seen = SimpleNamespace(
        start=SimpleNamespace(layouts=SimpleNamespace(parameters=parameters, optimizer_state=())),
        programs=SimpleNamespace(step=SimpleNamespace(collectives=moved)),
    )
    judge = Judge(Record("", "COM-2", "", case.id), "")
    derived = theory(promising(case, single_device, step=budget), seen, judge)
    return [*derived.reductions(), *derived.gathers(), *derived.scatters()]


def judged(case):
    """Where in the budget the lines stand that theory is asked about: where parameters only rest whole, COM-3 is."""
    for i, line in enumerate(case.contract.step):
        gathered = line.payload == "parameters" and set(line.axes) & axes_of(case, "parameters")
        if set(line.axes) & set(data_axes(case)) and (gathered or line.payload == "gradients"):
            yield i


def test_sharded_state_is_no_data_parallelism():
    """What FSDP's peak is held to has all its state whole: not ZeRO, whose parameters alone are."""
    cases = {case.strategy.name: case for case in DERIVED if case.id.endswith("-jax-mlp@data=8")}
    twins = {name for name, other in cases.items() if is_data_parallel_twin(cases["fsdp"], other)}
    assert {"zero1", "zero2"} <= cases.keys() and twins == {
        f"data_parallel{form}" for form in ("", "_shard_map", "_pmap")
    }


def test_every_kind_of_case_is_derived():
    """Experts, rings, fewer digits, microbatches, what is computed anew, pipelines: none is left to its own budget."""
    assert {case.strategy.name for case in EXCHANGING} >= {
        "expert_parallel", "expert_fsdp", "expert_parallel_shard_map", "expert_fsdp_shard_map", "context_parallel",
        "context_parallel_all_gather", "context_parallel_all_to_all", "fsdp_context_parallel",
    }  # fmt: skip
    variants = {getattr(case.strategy, "variant", "") for case in DERIVED}
    assert variants >= {"bf16", "accumulated", "accumulated_naively", "masked_accumulated", "bf16_accumulated", "remat"}
    assert {"parallel_3d_fsdp", "hsdp", "zero2"} <= {case.strategy.name for case in DERIVED}


@pytest.mark.parametrize("one", DERIVED, ids=lambda one: one.id)
def test_the_budget_is_what_layouts_imply(one):
    """What the page prices is what shapes and layouts say must move."""
    assert problems(one) == []


@pytest.mark.parametrize("one", DERIVED, ids=lambda one: one.id)
def test_no_other_budget_passes(one):
    """A line that is left out, and one that is there twice, is noticed: the step moves it, and the budget says so."""
    for i in judged(one):
        for lines in ([], [one.contract.step[i]] * 2):
            step = (*one.contract.step[:i], *lines, *one.contract.step[i + 1 :])
            assert problems(promising(one, step=step)), f"{len(lines)} times {one.contract.step[i]}"


def test_two_axes_may_be_gathered_over_one_after_the_other():
    """What rests split over two of them moves over the one in shards, then over the other whole, and back; once."""
    [wide, *_] = [case for case in EXCHANGING if case.strategy.name == "expert_fsdp"]
    both, one = ("data", "expert"), {"data": 1, "expert": wide.mesh["data"]}
    stages = [
        replace(line, axes=(axis,), bytes=line.bytes // one[axis])
        for line in wide.contract.step
        for axis in line.axes
        if line.operation in ("all-gather", "reduce-scatter") and line.axes == both
    ]
    rest = [line for line in wide.contract.step if line.axes != both or line.operation == "all-reduce"]
    assert len(stages) == 4 and problems(promising(wide, step=(*rest, *stages))) == []
    assert problems(promising(wide, step=(*rest, *stages, *stages)))


GATHERED = [one for one in DERIVED if one.strategy.name == "data_row_sharded" and 1 not in one.mesh.values()]
"""What rests split over an axis beside the batch's is gathered, and not computed with as it rests."""


@pytest.mark.parametrize("one", [one for one in DERIVED if one not in (*EXCHANGING, *GATHERED)], ids=lambda one: one.id)
def test_where_no_tokens_travel_layouts_at_rest_suffice(one):
    """A contract that leaves out how parameters are computed with is judged the same."""
    assert problems(promising(one, computed=None)) == []


@pytest.mark.parametrize("one", GATHERED, ids=lambda one: one.id)
def test_where_parameters_are_gathered_beside_the_batch_the_layout_in_use_is_needed(one):
    """Without it they seem to be computed with in shards, whose gradients are as small."""
    [told] = problems(promising(one, computed=None))
    assert "gradients reduced over data: expected" in str(told) and problems(one) == []


@pytest.mark.parametrize("one", EXCHANGING, ids=lambda one: one.id)
def test_where_tokens_travel_the_layout_in_use_is_needed(one):
    """Without it the clause is not supported, and with one that says that all parameters are whole it fails."""
    with pytest.raises(pytest.skip.Exception, match="promises no layout in which parameters are computed with"):
        problems(promising(one, computed=None))
    assert problems(promising(one, computed={"*": PartitionSpec()}))


@pytest.mark.parametrize("part", ["parameters", "gradients", "batch"])
def test_an_open_layout_is_not_judged(part):
    """Where a contract leaves out how leaves lie, nothing is derived, and nothing is proved: not supported."""
    one = next(case for case in DERIVED if case.id == "fsdp_shard_map-jax-mlp@data=8")
    judge = Judge(Record("", "COM-2", "", one.id), "")
    with pytest.raises(pytest.skip.Exception, match=f"promises no layout of the {part}"):
        theory(promising(one, **{part: None}), SimpleNamespace(), judge)


def test_a_parameter_without_layout_in_use_is_named():
    """A leaf that ``computed`` forgets is no whole one."""
    with pytest.raises(pytest.fail.Exception, match=r"no PartitionSpec for computed leaf 'token_embedding/embedding'"):
        problems(promising(EXCHANGING[0], computed={"position_embedding/*": PartitionSpec("context")}))


@pytest.mark.parametrize("one", DERIVED, ids=lambda one: one.id)
def test_fewer_digits_count_as_float32_where_they_are_promised(one):
    """As many elements in bfloat16 are as good where a step computes in it, and too few bytes where it does not."""
    assert bool(problems(one, "bf16", 2)) == (one not in NARROW)


@pytest.mark.parametrize("one", NARROW, ids=lambda one: one.id)
def test_fewer_digits_hide_no_elements(one):
    """Twice the elements in half the digits are as many bytes and too many elements; other digits are not promised."""
    assert problems(one, "bf16", 4)
    assert problems(one, "f8e5m2", 1)


def test_absent_truths_are_not_equal():
    """Two trainers that bring none are no twins: one may have another optimizer, and be healthy."""
    one, other = (Case("", odd(variant=variant), {"data": 1}, "cpu") for variant in ("accumulated", ""))
    assert not share_truth(one, other)


BIASES = 4 * (128 + 512 + 128 + 10)


@pytest.mark.parametrize(
    ("more", "explicit", "passes"),
    [
        (-40, False, True),
        (-40, True, False),
        (-BIASES, False, True),
        (-BIASES - 4, False, False),
        (15 * BIASES, False, True),
        (15 * BIASES + 4, False, False),
        (512, True, False),
    ],
)
def test_gradients_of_vectors_where_a_compiler_writes_the_collectives(more, explicit, passes):
    """They may be made of sums, or be reduced in each use; by hand each is reduced, once."""
    case = next(case for case in DERIVED if case.id == "data_parallel-jax-mlp@data=8")
    [gradients] = [line for line in case.contract.step if line.payload == "gradients"]
    other = promising(case, step=(replace(gradients, bytes=gradients.bytes + more),), explicit=explicit)
    assert problems(other)
    assert bool(problems(other, single_device=True)) is not passes


@pytest.mark.parametrize(("beyond", "explicit", "passes"), [(0, False, True), (4, False, False), (0, True, False)])
def test_one_sum_of_which_the_gradients_of_kernels_of_one_shape_are_made(beyond, explicit, passes):
    """A compiler may reduce no other gradients of those of its shape; by hand each is reduced."""
    case = next(case for case in DERIVED if case.id == "data_parallel-jax-gpt_block@data=8")
    shapes = [shape for _, shape in leaves(case.strategy.network.shapes)]
    may_lack = [shape for number, shape in enumerate(shapes) if len(shape) < 2 or shape in shapes[:number]]
    assert sorted(shape for shape in may_lack if len(shape) > 1) == [(8, 8), (64, 8, 8), (64, 8, 8)]
    [gradients] = [line for line in case.contract.step if line.payload == "gradients"]
    fewer = gradients.bytes - 4 * sum(map(prod, may_lack)) - beyond
    other = promising(case, step=(replace(gradients, bytes=fewer),), explicit=explicit)
    assert problems(other)
    assert bool(problems(other, single_device=True)) is not passes


@pytest.mark.parametrize(
    ("scattered", "summed", "gathered", "passes"),
    [(0, 0, 0, True), (12, 3, 12, True), (0, 1, 0, False), (4, 0, 4, False), (0, 0, 4, False), (100, 25, 100, False)],
)
def test_gradients_may_be_scattered_and_gathered_again(scattered, summed, gathered, passes):
    """Then as much of them as a device has is reduced over the other axis, and they may be padded to be shared."""
    case = next(case for case in DERIVED if case.id == "data_parallel-jax-mlp@data=8")
    [whole] = [line for line in case.contract.step if line.payload == "gradients"]
    case = Case(case.id, case.strategy, {"host": 2, "chip": 4}, case.target)
    step = (
        replace(whole, operation="reduce-scatter", axes=("chip",), bytes=whole.bytes + scattered),
        replace(whole, axes=("host",), bytes=whole.bytes // 4 + summed),
        replace(whole, operation="all-gather", axes=("chip",), bytes=whole.bytes + gathered),
    )
    batch = {"*": PartitionSpec(("host", "chip"))}
    assert bool(problems(promising(case, step=step, batch=batch))) is not passes


def test_a_vector_of_all_parameters_is_known_by_its_length():
    """With what is padded so that devices share it. A whole one is none, nor is any beside moments of single leaves."""
    whole, shared = PartitionSpec(), PartitionSpec("data")
    case = SimpleNamespace(contract=SimpleNamespace(gradients={"*": whole}), devices=8)
    parameters = [LeafLayout(path, shape, 4, "", (), whole) for path, shape in (("w", (16, 31)), ("b", (31,)))]

    def of(length, spec=shared, *others):
        return raveled(case, parameters, [*others, LeafLayout("mu", (length,), 4, "", (), spec)])

    assert of(527) and of(528) and of(527 + 8 * 128 - 1)
    assert not of(526) and not of(527 + 8 * 128) and not of(528, whole)
    assert not of(528, shared, LeafLayout("nu/w", (16, 31), 4, "", (), shared))
