"""Experts on a mesh: what does not divide is refused, and what the tokens' journeys cost is counted."""

import pytest

from meshproof.cases import load_cases
from reference_impl.forms.annotated import JaxForm
from reference_impl.models.moe import MoE
from reference_impl.strategies import expert_fsdp, expert_parallel
from reference_impl.truth import Momentum
from suites.applicability import tensor_parallel

FLOAT32 = 4


def test_experts_that_do_not_divide_are_refused():
    """A mesh that splits the experts unevenly is an error that names their number, the array and the axis."""
    with pytest.raises(ValueError, match="experts/up: experts=6 is not divisible by expert=4"):
        JaxForm(expert_parallel.PAGE, {"expert": 4}, Momentum(), MoE(experts=6))
    with pytest.raises(ValueError, match="input/kernel: embed=60 is not divisible by data×expert=8"):
        JaxForm(expert_fsdp.PAGE, {"data": 2, "expert": 4}, Momentum(), MoE(width=60))


def test_groups_that_do_not_divide_are_refused():
    """A batch of which a device would hold half a group is an error that names its size, the axis and the group."""
    form = JaxForm(expert_parallel.PAGE, {"expert": 8}, Momentum(), MoE(), batch_size=32)
    [batch] = form.batches(1)
    with pytest.raises(ValueError, match="'x' of 32 examples gives each device 4, which is not divisible by group=8"):
        form.shard_batch(batch)


@pytest.mark.parametrize(
    ("dims", "message"),
    [
        ({"choices": 9}, "9 choices of 8 experts"),
        ({"choices": 0}, "0 choices of 8 experts"),
        ({"width": 30, "group": 32, "capacity_factor": 0.1}, "240 elements .* not divisible by its 32 tokens"),
    ],
)
def test_mixtures_that_are_none_are_refused(dims, message):
    """Choices beyond the experts, and places that no whole share of a token pays for, are errors with both numbers."""
    with pytest.raises(ValueError, match=message):
        list(MoE(**dims).regions())


@pytest.mark.parametrize(("factor", "places"), [(1.0, 2), (1.25, 3), (4.0, 8), (0.1, 1)])
def test_capacity_is_the_fair_share_times_its_factor(factor, places):
    """2 · 8 choices of a group over 8 experts are 2 places each, times the factor, rounded up."""
    assert MoE(capacity_factor=factor).capacity == places


@pytest.mark.parametrize(
    ("page", "mesh"),
    [(expert_parallel.PAGE, {"expert": 8}), (expert_fsdp.PAGE, {"data": 2, "expert": 4})],
    ids=["ep", "fsdp"],
)
def test_every_place_travels_four_times(page, mesh):
    """Of each of its groups a device sends all experts' places: twice forward, four times in a step, filled or not."""
    model = MoE(width=128, capacity_factor=1.25)
    contract = JaxForm(page, mesh, Momentum(), model, batch_size=256).contract
    groups, experts, places, width = 256 // 8 // 8, 8, 3, 128
    buffer = groups * experts * places * width * FLOAT32
    for lines, journeys in ((contract.forward, 2), (contract.step, 4)):
        [line] = [line for line in lines if line.operation == "all-to-all"]
        assert (line.axes, line.payload, line.bytes) == (("expert",), "activations", journeys * buffer)


def test_experts_are_gathered_over_data_alone():
    """On data=2, expert=4 a device gathers its two experts over data, and what is no expert over both axes."""
    model = MoE()
    step = JaxForm(expert_fsdp.PAGE, {"data": 2, "expert": 4}, Momentum(), model).contract.step
    moved = {(line.operation, line.axes): line.bytes // FLOAT32 for line in step if line.payload != "metrics"}
    own, shared = 2 * 2 * 64 * 128, 256 * 64 + 64 + 64 * 8 + 64 * 10
    assert moved == {
        ("all-gather", ("data",)): own,
        ("all-gather", ("data", "expert")): shared,
        ("all-to-all", ("expert",)): 4 * 8 * 2 * 64,
        ("reduce-scatter", ("data",)): own,
        ("reduce-scatter", ("data", "expert")): shared,
        ("all-reduce", ("data", "expert")): 10,
    }


def test_what_crosses_between_tokens_is_no_tensor_parallelism():
    """Its clauses apply where devices share a product, not where tokens go to experts, see others, or change stages."""
    applies = {case.strategy.name for case in load_cases("reference_impl") if tensor_parallel(case)}
    assert applies == {
        "tensor_parallel", "tensor_parallel_shard_map", "data_tensor_parallel", "data_column_parallel",
        "vocabulary_parallel",
        "fsdp_tensor_parallel", "fsdp_tensor_parallel_shard_map", "fsdp_tensor_parallel_blockwise_shard_map",
        "sequence_parallel", "sequence_parallel_shard_map",
        "sequence_parallel_collective_matmul", "pipeline_tensor_parallel", "parallel_3d", "parallel_3d_fsdp",
    }  # fmt: skip
