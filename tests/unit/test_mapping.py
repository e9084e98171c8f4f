"""Logical axes that cannot be laid out are refused in words, before anything is compiled."""

import jax
import pytest
from jax.sharding import PartitionSpec

from reference_impl.forms.annotated import JaxForm
from reference_impl.forms.manual import Manual
from reference_impl.mapping import FirstDimension, Mapping
from reference_impl.models.gpt import GPT
from reference_impl.models.mlp import MLP
from reference_impl.strategies import context_parallel_all_to_all, fsdp_tensor_parallel, hsdp, tensor_parallel
from reference_impl.truth import Momentum


def test_several_mesh_axes_may_split_one_logical_axis():
    """The first splits it most coarsely."""
    assert Mapping(batch=("replica", "data")).spec(("batch", "embed")) == PartitionSpec(("replica", "data"), None)


@pytest.mark.parametrize("mapping", [Mapping(embed="data", mlp="data"), Mapping(embed=("model", "data"), mlp="data")])
def test_two_logical_axes_on_one_mesh_axis_are_refused(mapping):
    """The error names both logical axes, the array's axes and the mesh axis."""
    with pytest.raises(ValueError, match=r"logical axes embed and mlp of one array .* mesh axis 'data'"):
        mapping.spec(("embed", "mlp"))


def test_a_first_dimension_alone_is_split():
    """Whatever it means, and whatever comes behind it; two names of one array do not land on one mesh axis."""
    rows = FirstDimension(embed="model", heads="model")
    assert rows.spec(("embed", "heads", "head_dim")) == rows.spec(("heads", "head_dim")) == PartitionSpec("model")
    assert rows.spec(("vocab", "embed")) == PartitionSpec(None) and rows.split(("vocab", "embed")) == ()
    rows.check("query", ("embed", "heads"), (64, 6), {"model": 8})
    with pytest.raises(ValueError, match=r"query: embed=60 is not divisible by model=8"):
        rows.check("query", ("embed", "heads"), (60, 8), {"model": 8})


def test_dimension_that_does_not_divide_is_refused():
    """The error names the leaf, the logical axis and both numbers."""
    with pytest.raises(ValueError, match=r"dense_1/kernel: mlp=36 is not divisible by model=8"):
        JaxForm(tensor_parallel.PAGE, {"model": 8}, Momentum(), MLP(widths=(784, 128, 36, 10)))


def test_optimizer_state_is_checked_too():
    """Parameters that are computed with whole may still not divide at rest."""
    with pytest.raises(ValueError, match=r"dense_0/kernel: embed=100 is not divisible by data=8"):
        JaxForm(fsdp_tensor_parallel.PAGE, {"data": 8, "model": 1}, Momentum(), MLP(widths=(784, 100, 512, 10)))


def test_mesh_without_the_pages_axis_is_refused():
    """The error names the logical axis, the missing mesh axis and those that there are."""
    with pytest.raises(ValueError, match=r"dense_0/kernel: embed is mapped to 'data', the mesh has \['replica'\]"):
        JaxForm(hsdp.PAGE, {"replica": 8}, Momentum())


def test_heads_that_cannot_be_traded_are_refused():
    """The error names both numbers, and the strategy that splits no heads."""
    network = GPT(blocks=1, heads=4)
    form = Manual(context_parallel_all_to_all.PAGE, {"data": 1, "context": 8}, Momentum(), network, batch_size=8)
    state, batch = form.init(jax.random.key(0)), form.shard_batch(next(iter(form.batches(1))))
    with pytest.raises(ValueError, match=r"4 heads do not divide among context=8: .* context_parallel, whose ring"):
        form.loss(state, batch)
