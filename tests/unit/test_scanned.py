"""The GPT that is scanned over its blocks: the numbers of the one whose blocks stand one after another."""

from dataclasses import replace
from math import prod

import numpy as np
import pytest

from meshproof.contract import leaves, nest
from reference_impl.models.gpt import GPT
from reference_impl.models.layout import Layout
from reference_impl.models.scanned_gpt import ScannedGPT
from reference_impl.sizes import gpt_1_5b, gpt_7b, gpt_70b, gpt_124m, gpt_175b, tutorial
from reference_impl.truth import Momentum

SCANNED = ScannedGPT(vocab=11, length=4, embed=8, heads=2, head_dim=4, mlp=16, blocks=3)
UNROLLED = GPT(**vars(SCANNED))
SIZES = {gpt_124m: 124_430_592, gpt_1_5b: 1_557_534_400, gpt_7b: 6_658_273_280}
SIZES |= {gpt_70b: 64_711_311_360, gpt_175b: 174_603_079_680}


def stacked(tree):
    """A tree of single blocks, flat, as that of the scanned model."""
    flat = dict(leaves(tree))
    rows = lambda path: [flat[path.replace("blocks", f"block_{i}", 1)] for i in range(SCANNED.blocks)]  # noqa: E731
    return {p: np.stack(rows(p)) if p.startswith("blocks/") else flat[p] for p, _ in leaves(SCANNED.shapes)}


def test_truth_is_that_of_single_blocks():
    """Start values, batches, losses, gradients and their rounding are those of the unrolled truth, stacked."""
    one, other = UNROLLED.truth(Momentum()), SCANNED.truth(Momentum())
    start = one.initial_parameters()
    assert all(np.array_equal(dict(leaves(other.initial_parameters()))[p], x) for p, x in stacked(start).items())
    batches = other.batches(1, 2)
    unrolled, scanned = one.train(start, batches), other.train(other.initial_parameters(), batches)
    assert scanned.value.steps[0].loss == unrolled.value.steps[0].loss
    for path, gradient in stacked(unrolled.value.gradients).items():
        np.testing.assert_array_equal(scanned.value.gradients[path], gradient)
    for path, rounding in stacked(unrolled.rounding.gradients).items():
        np.testing.assert_array_equal(scanned.rounding.gradients[path], rounding)


def test_a_block_that_is_left_out_is_noticed():
    """The loss is not that of a model with one block less."""
    truth = SCANNED.truth(Momentum())
    [batch] = truth.batches(1, 2)
    parameters = truth.initial_parameters()
    short = nest({path: x[:-1] if path.startswith("blocks/") else x for path, x in leaves(parameters)})
    expected = truth.train(parameters, [batch]).value.steps[0].loss
    whole, cut = (float(SCANNED.loss(tree, batch, Layout())) for tree in (parameters, short))
    assert abs(whole - expected) < 1e-5 < abs(cut - expected)


def test_dropout_is_refused():
    """A block of a scan does not know its number, of which its mask is drawn."""
    with pytest.raises(ValueError, match=r"dropout=0.1 in a scan over blocks: expected 0"):
        replace(SCANNED, dropout=0.1)


@pytest.mark.parametrize("size", SIZES, ids=lambda size: size.__name__.rpartition(".")[2])
def test_size_is_what_its_page_says(size):
    """The number of parameters is the docstring's; a contract is priced, and a batch drawn, without any device."""
    assert f"{SIZES[size]:,} parameters" in size.__doc__
    assert sum(int(np.prod(shape)) for _, shape in leaves(size.TRANSFORMER.shapes)) == SIZES[size]
    for form in size.strategies():
        assert form.contract.step
        [batch] = form.batches(1)
        assert batch["x"].shape == batch["y"].shape == (form.batch_size, size.TRANSFORMER.length)


def test_the_tutorials_examples_are_of_its_sizes():
    """On its meshes; a contract is priced, and a batch drawn, without any device."""
    forms = list(tutorial.strategies())
    devices = [prod(form.mesh_axes.values()) for form in forms]
    assert devices == [8, 8, 8, 1024, 16, 4, 128, 32, 1024]
    for network, parameters in ((tutorial.RESNET_50, 26.3e6), (tutorial.GPT_2_MEDIUM, 355e6), (tutorial.VIT_1B, 1.0e9)):
        assert sum(prod(shape) for _, shape in leaves(network.shapes)) == pytest.approx(parameters, rel=0.02)
    for form in forms:
        assert form.contract.step
        [batch] = form.batches(1)
        assert len(batch["x"]) == form.batch_size


def test_mesh_follows_the_number_of_devices():
    """Twice the devices take twice the batch, and split a tensor no further."""
    one, two = next(gpt_175b.strategies(1024)), next(gpt_175b.strategies(2048))
    assert (one.mesh_axes, two.mesh_axes) == ({"data": 256, "model": 4}, {"data": 512, "model": 4})
    assert two.batch_size == 2 * one.batch_size
