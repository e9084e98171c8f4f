"""The engine runs any schedule, and the pages draw theirs."""

from inspect import cleandoc

import jax
import numpy as np
import pytest

from meshproof.contract import leaves
from meshproof.measures.pipeline_schedules import count
from reference_impl.forms.pipeline import Pipeline
from reference_impl.forms.pipelined import Pipelined
from reference_impl.models.layout import Layout
from reference_impl.models.mlp import MLP
from reference_impl.models.scanned_gpt import ScannedGPT
from reference_impl.models.scanned_gpt_nnx import NnxScannedGPT
from reference_impl.models.stacked_mlp import StackedMLP
from reference_impl.strategies import (
    parallel_3d,
    parallel_3d_fsdp,
    pipeline_1f1b,
    pipeline_gpipe,
    pipeline_interleaved,
    pipeline_tensor_parallel,
    pipeline_zero_bubble,
)
from reference_impl.theory.schedules import gpipe, interleaved, one_forward_one_backward, zero_bubble
from reference_impl.truth import Momentum

pytestmark = pytest.mark.any_stack

DRAWN = {
    pipeline_gpipe: (4, 8),
    pipeline_1f1b: (4, 8),
    pipeline_zero_bubble: (4, 8),
    pipeline_interleaved: (4, 4),
    pipeline_tensor_parallel: (2, 8),
    parallel_3d: (2, 8),
    parallel_3d_fsdp: (2, 8),
}
SMALL = StackedMLP((6, 8, *(4, 8) * 8, 5))
TRANSFORMER = ScannedGPT(vocab=11, length=4, embed=8, heads=2, head_dim=4, mlp=16)
CUBE = {"stage": 2, "data": 2, "model": 2}
STARVED = pytest.mark.filterwarnings("ignore:3 microbatches keep 8 stages busy")


def small(page, stages, microbatches, pairs=8):
    """A pipeline of a small network, with three examples in a microbatch."""
    network = StackedMLP((6, 8, *(4, 8) * pairs, 5))
    size = 3 * microbatches
    return Pipelined(page, {"stage": stages}, Momentum(), network, microbatches=microbatches, batch_size=size)


@pytest.mark.parametrize("module", DRAWN, ids=lambda module: module.PAGE.name)
def test_pages_draw_their_schedule(module):
    """The drawing in a page's docstring is that of its schedule."""
    drawings = [
        cleandoc(block) for block in cleandoc(module.__doc__).split("\n\n") if block.lstrip().startswith("stage")
    ]
    assert drawings == [module.PAGE.make_schedule(*DRAWN[module]).drawing()]


@pytest.mark.parametrize(
    ("page", "stages", "microbatches", "pairs"),
    [
        pytest.param(pipeline_1f1b.PAGE, 8, 3, 8, marks=STARVED),
        pytest.param(pipeline_zero_bubble.PAGE, 8, 3, 8, marks=STARVED),
        pytest.param(pipeline_zero_bubble.PAGE, 2, 5, 8, marks=pytest.mark.thorough),
        pytest.param(pipeline_zero_bubble.PAGE, 1, 3, 8, marks=pytest.mark.thorough),
        pytest.param(pipeline_interleaved.PAGE, 2, 4, 8, marks=pytest.mark.thorough),
        (pipeline_interleaved.PAGE, 3, 6, 6),
    ],
)
def test_any_schedule_gives_the_gradients_of_the_whole(page, stages, microbatches, pairs):
    """Loss and gradients of a pipeline are those of its model in one piece, to 1e-5 of their size."""
    form = small(page, stages, microbatches, pairs)
    check_gradients(form, MLP(form.network.widths))


@pytest.mark.parametrize(
    ("page", "mesh"),
    [
        pytest.param(pipeline_1f1b.PAGE, {"stage": 4}, marks=pytest.mark.thorough),
        (pipeline_interleaved.PAGE, {"stage": 2}),
        pytest.param(parallel_3d.PAGE, CUBE, marks=pytest.mark.thorough),
        (parallel_3d_fsdp.PAGE, CUBE),
    ],
    ids=lambda given: getattr(given, "name", ""),
)
def test_a_transformer_gives_the_gradients_of_the_whole(page, mesh):
    """So are those of a transformer, whose first and last stage share a table; in the order of interleaved stages too.

    The suites judge GPipe, and two stages that are split.
    """
    form = Pipelined(page, mesh, Momentum(), TRANSFORMER, microbatches=4, batch_size=8)
    check_gradients(form, TRANSFORMER)


def check_gradients(form, model):
    """Loss and gradients of a form against those of a model in one piece."""
    start = form.truth.initial_parameters()
    batch = next(iter(form.batches(1)))
    state, placed = form.load(start), form.shard_batch(batch)
    loss, gradients = jax.value_and_grad(model.loss)(start, batch, Layout())
    assert float(form.loss(state, placed)) == pytest.approx(float(loss), rel=1e-6)
    seen = dict(leaves(form.gradients(state, placed)))
    assert seen.keys() == dict(leaves(gradients)).keys()
    for path, expected in leaves(gradients):
        assert np.linalg.norm(seen[path] - expected) <= 1e-5 * np.linalg.norm(expected), path


def test_stacking_is_undone():
    """A stacked tree, in the order of interleaved stages, unstacks to the canonical one it was made of."""
    form = small(pipeline_interleaved.PAGE, 2, 4)
    assert form.order == [0, 1, 4, 5, 2, 3, 6, 7]
    start = form.truth.initial_parameters()
    stacked = SMALL.stack(start, form.order)
    assert {path: leaf.shape for path, leaf in leaves(stacked)} == dict(leaves(SMALL.shapes))
    back = dict(leaves(SMALL.unstack(stacked, form.order)))
    assert back.keys() == dict(leaves(start)).keys()
    assert all(np.array_equal(back[path], leaf) for path, leaf in leaves(start))


def test_stacked_blocks_are_reordered():
    """The canonical tree of a transformer is stacked already: only its rows move, and back."""
    order = [0, 2, 3, 1]
    start = TRANSFORMER.truth(Momentum()).initial_parameters()
    stacked = TRANSFORMER.stack(start, order)
    rows, back = dict(leaves(stacked)), dict(leaves(TRANSFORMER.unstack(stacked, order)))
    for path, leaf in leaves(start):
        assert np.array_equal(rows[path], leaf[order] if path.startswith("blocks/") else leaf), path
        assert np.array_equal(back[path], leaf), path


def test_transformer_modules_are_the_transformer():
    """Of NNX modules the logits are those of the plain model, to 1e-5; each block has start values of its own."""
    modules = NnxScannedGPT(**vars(TRANSFORMER))
    start = modules.init(jax.random.key(0))
    assert {path: leaf.shape for path, leaf in leaves(start)} == dict(leaves(TRANSFORMER.shapes))
    x = np.arange(12, dtype=np.int32).reshape(3, 4) % TRANSFORMER.vocab
    seen = modules.apply(start, x, Layout())
    np.testing.assert_allclose(seen, TRANSFORMER.apply(start, x, Layout()), rtol=1e-5, atol=1e-5)
    kernel = np.asarray(start["blocks"]["linear_1"]["kernel"])
    assert not np.array_equal(kernel[0], kernel[1])


def test_the_stacked_network_is_the_mlp():
    """The stacked model computes what the MLP of the same widths computes, and starts at the same scale."""
    form = small(pipeline_gpipe.PAGE, 1, 2)
    start = form.truth.initial_parameters()
    x = next(iter(form.batches(1)))["x"]
    stacked = SMALL.apply(SMALL.stack(start, range(8)), x, Layout())
    np.testing.assert_allclose(stacked, MLP(SMALL.widths).apply(start, x, Layout()), rtol=1e-5, atol=1e-5)
    kernel = np.asarray(StackedMLP().init(jax.random.key(0))["up"]["kernel"])
    assert kernel.std() * np.sqrt(128) == pytest.approx(1, rel=0.05)


@pytest.mark.parametrize(
    ("schedule", "places"),
    [
        (gpipe(4, 8), 8 + 1),
        (one_forward_one_backward(4, 8), 4 + 1),
        (zero_bubble(4, 8), 4 + 3),
        (interleaved(4, 8, 2), 9),
    ],
)
def test_the_store_is_as_large_as_the_schedule_needs(schedule, places):
    """At M=8, S=4 a stage of GPipe keeps 8 activations, of 1F1B 4; and the gradient that is handed back.

    With zero bubble 4 activations, and 3 gradients that wait for their weights or are handed back. What is counted from
    the slots is that, and what is on its way: two with zero bubble, else one.
    """
    assert len(set(Pipeline(SMALL, schedule, Layout()).places.values())) == places
    assert count(schedule.slots).held == places + 1 + schedule.has_weights


def test_stages_that_do_not_divide_the_layers_are_refused():
    """A stage count that does not divide the blocks is an error that names both; so are their chunks."""
    with pytest.raises(ValueError, match="8 blocks are not divisible by 3 stages of 1 chunks"):
        small(pipeline_gpipe.PAGE, 3, 8)
    with pytest.raises(ValueError, match="4 blocks are not divisible by 4 stages of 2 chunks"):
        Pipelined(pipeline_interleaved.PAGE, {"stage": 4}, Momentum(), TRANSFORMER)
    with pytest.raises(ValueError, match=r"blocks/attention/query/kernel.*2.*4"):
        Pipelined(pipeline_tensor_parallel.PAGE, {"stage": 2, "model": 4}, Momentum(), TRANSFORMER)


def test_microbatches_that_do_not_divide_the_batch_are_refused():
    """A batch that is no whole number of microbatches on each shard is an error that names them all."""
    form = Pipelined(parallel_3d.PAGE, CUBE, Momentum(), batch_size=40)
    with pytest.raises(ValueError, match="40 examples is not divisible by 2 shards of 8 microbatches"):
        form.shard_batch(next(iter(form.batches(1))))


def test_layers_that_are_not_alike_are_not_stacked():
    """Widths that are no pairs of one kind are an error that shows them."""
    with pytest.raises(ValueError, match=r"widths \(6, 8, 4, 8, 3, 8, 5\)"):
        StackedMLP((6, 8, 4, 8, 3, 8, 5))
