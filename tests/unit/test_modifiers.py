"""Modifiers where no whole case is needed: what is split, kept and refused, and what is a truth's own."""

from functools import partial

import jax
import numpy as np
import pytest

from meshproof.contract import leaves
from reference_impl.forms.annotated import JaxForm
from reference_impl.forms.nnx_form import NnxForm
from reference_impl.models import Model
from reference_impl.models.gpt import GPT
from reference_impl.models.layout import Layout
from reference_impl.models.mlp import MLP
from reference_impl.modifiers import Modified
from reference_impl.modifiers.accumulation import Accumulated, split
from reference_impl.modifiers.masking import Masked
from reference_impl.modifiers.precision import MixedPrecision, NarrowOnTheMove
from reference_impl.modifiers.rematerialisation import Rematerialised
from reference_impl.strategies import fsdp, hsdp, vocabulary_parallel
from reference_impl.truth import MaskedTruth, MLPTruth, Momentum

SMALL = (5, 7, 6, 4)


def test_each_device_splits_its_own_examples():
    """Whatever divides a batch among devices, its parts hold the examples of each in the same place: none moves."""
    parts = split({"x": np.arange(24).reshape(24, 1)}, 3)["x"]
    assert parts.shape == (3, 8, 1)
    for devices in (2, 4, 8):
        held = np.split(parts, devices, axis=1)
        assert [sorted(part.ravel()) for part in held] == np.arange(24).reshape(devices, -1).tolist()


def test_too_few_examples_are_refused():
    """A batch that does not divide into the microbatches is an error that names both numbers."""
    with pytest.raises(ValueError, match=r"'x' of 6 examples is not divisible by 4 microbatches"):
        split({"x": np.zeros((6, 2))}, 4)


@pytest.mark.parametrize("network", [GPT(blocks=1, dropout=0.1), Masked(MLP(SMALL))], ids=["dropout", "masked"])
def test_a_loss_that_a_page_does_not_compute_is_refused(network):
    """Where the page and not the model computes the loss, the error names the model and the strategy to choose."""
    with pytest.raises(ValueError, match=r"not the loss of .*: for that one choose tensor_parallel_shard_map"):
        vocabulary_parallel.loss(network, {}, {})


def test_modifiers_nest():
    """Each keeps what the other promises, and the model's name, shapes and truth."""
    network = Accumulated(Masked(MLP(SMALL)), 2)
    assert network.promises == {"microbatches": 2, "mask": "mask"}
    assert network.batch_axes == {**MLP(SMALL).batch_axes, "mask": ("batch",)}
    assert (network.name, network.shapes) == ("mlp", MLP(SMALL).shapes)
    assert network.truth(Momentum()) == MaskedTruth(MLPTruth(SMALL))


def test_a_modifier_answers_for_the_whole_model():
    """Nothing that a strategy may ask is answered by the defaults of a model, but what is made of the rest."""
    asked = {name for name in vars(Model) if not name.startswith("_")}
    assert asked - vars(Modified).keys() == {"loss"}


def test_models_without_blocks_are_refused():
    """What does not run block by block cannot be computed anew, and says so."""
    with pytest.raises(ValueError, match=r"MLP.* does not run block by block"):
        Rematerialised(MLP(SMALL))


@pytest.mark.parametrize(
    "nest",
    [lambda model: Accumulated(Rematerialised(model), 2), lambda model: Rematerialised(Accumulated(model, 2))],
    ids=["accumulated last", "accumulated first"],
)
def test_rematerialisation_nests_with_accumulation(nest):
    """In either order they promise both, and leave loss and gradients what they were."""
    model = GPT(vocab=8, length=4, embed=8, heads=2, head_dim=4, mlp=16)
    network, truth = nest(model), model.truth(Momentum())
    start, [batch] = truth.initial_parameters(), truth.batches(1, 4)
    assert network.promises == {"microbatches": 2, "rematerialises": True}
    differentiate = (jax.jit(m.value_and_grad(partial(m.loss, layout=Layout()))) for m in (model, network))
    (expected_loss, expected_gradients), (loss, gradients) = (run(start, batch) for run in differentiate)
    assert float(loss) == pytest.approx(float(expected_loss), rel=1e-6)
    expected = dict(leaves(expected_gradients))
    for path, gradient in leaves(gradients):
        assert np.linalg.norm(gradient - expected[path]) <= 1e-5 * np.linalg.norm(expected[path])


def test_only_what_enters_a_block_is_kept():
    """From the forward to the backward pass goes what enters a block, and nothing that it computes on its way."""
    model = GPT(vocab=8, length=4, embed=8, heads=2, head_dim=4, mlp=16)
    truth = model.truth(Momentum())
    start, [batch] = truth.initial_parameters(), truth.batches(1, 4)

    def kept(network):
        pullback = jax.eval_shape(lambda w: jax.vjp(lambda w: network.loss(w, batch, Layout()), w)[1], start)
        return [leaf.shape for leaf in jax.tree.leaves(pullback)]

    within = (4, 4, 16), (4, 2, 4, 4), (4, 4, 2, 4)
    assert all(shape in kept(model) for shape in within)
    assert not any(shape in kept(Rematerialised(model)) for shape in within)


@pytest.mark.parametrize("modifier", [Accumulated, Masked, Rematerialised])
def test_models_that_drop_are_refused(modifier):
    """A modifier would train every step with the masks of the first: it refuses a model with dropout, by name."""
    with pytest.raises(ValueError, match=f"dropout=0.1 under {modifier.__name__}: expected 0"):
        modifier(GPT(dropout=0.1))


def test_masking_what_accumulates_is_refused():
    """Parts would be weighed by examples that do not count: the error says in which order to nest."""
    with pytest.raises(ValueError, match=r"accumulates 2 microbatches: mask it first, Accumulated\(Masked\(model\)\)"):
        Masked(Accumulated(MLP(SMALL), 2))


def test_a_masked_truth_is_that_of_the_valid_examples():
    """Whatever the padding holds, the numbers are those of a batch that never had it."""
    truth = MaskedTruth(MLPTruth(SMALL))
    [batch] = truth.batches(1, 16)
    kept = {name: field[batch["mask"]] for name, field in batch.items() if name != "mask"}
    padded = batch | {"x": np.where(batch["mask"][:, None], batch["x"], np.nan).astype(np.float32)}
    start = truth.initial_parameters()
    expected = truth.model.train(start, [kept]).value
    assert 0 < len(kept["x"]) < 16
    for one in (padded, kept):
        seen = truth.train(start, [one]).value
        assert seen.steps[0].loss == expected.steps[0].loss
        assert all(np.array_equal(seen.gradients[path], value) for path, value in expected.gradients.items())


@pytest.mark.parametrize("mask", [np.ones(16), np.ones(15, bool)], ids=["float", "short"])
def test_a_strange_mask_is_refused(mask):
    """A mask that is no truth value for each example is an error that names what it is."""
    truth = MaskedTruth(MLPTruth(SMALL))
    with pytest.raises(ValueError, match=r"mask is (float64\(16,\)|bool\(15,\)), expected bool\(16,\)"):
        truth.train(truth.initial_parameters(), [truth.model.batches(1, 16)[0] | {"mask": mask}])


@pytest.mark.parametrize(("modifier", "gathered"), [(NarrowOnTheMove, {"bfloat16"}), (MixedPrecision, {"float32"})])
def test_what_moves_narrow_is_cast_before_it_is_gathered(modifier, gathered):
    """In the step as it is written, parameters are replicated in bfloat16, or, if only computed in it, in float32."""
    form = JaxForm(fsdp.PAGE, {"data": 8}, Momentum(), modifier(MLP((16, 64, 64, 10))))
    with jax.set_mesh(form.mesh):
        traced = form.loss.jitted.trace(form.abstract_state(), form.abstract_batch())
    kernels = {shape for path, shape in leaves(form.network.shapes) if path.endswith("kernel")}
    replicated = {
        str(each.outvars[0].aval.dtype)
        for each in traced.jaxpr.eqns
        if each.primitive.name == "sharding_constraint"
        and each.params["sharding"].is_fully_replicated
        and each.outvars[0].aval.shape in kernels
    }
    assert replicated == gathered


def test_what_moves_narrow_is_budgeted_so():
    """Half the bytes, and the dtype; but metrics, and what groups average in float32."""
    form = JaxForm(fsdp.PAGE, {"data": 8}, Momentum(), NarrowOnTheMove(MLP((16, 64, 64, 10))))
    wide = JaxForm(fsdp.PAGE, {"data": 8}, Momentum(), MixedPrecision(MLP((16, 64, 64, 10))))
    assert [line.dtype for line in form.contract.step] == ["bfloat16"] * 3 + [None]
    assert [line.bytes for line in form.contract.step[:3]] == [line.bytes // 2 for line in wide.contract.step[:3]]
    groups = JaxForm(hsdp.TABLE, {"replica": 2, "data": 4}, Momentum(), form.network)
    assert [line.dtype for line in groups.contract.step if line.axes == ("replica",)] == ["float32", None]


def test_what_a_module_of_a_framework_does_not_do_is_refused():
    """Recomputation and, where NNX differentiates, accumulation: the contract would promise them."""
    with pytest.raises(ValueError, match="as a framework's module: expected a plain JAX form"):
        Rematerialised(GPT(blocks=1)).applied(lambda parameters, x: x)
    with pytest.raises(ValueError, match="2 microbatches in NnxForm: expected none; NnxPmap accumulates"):
        NnxForm(fsdp.PAGE, {"data": 8}, Momentum(), Accumulated(MLP(), 2))
