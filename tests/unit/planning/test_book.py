"""A plan moves and holds what the book's own pages do: their budgets equal the census of what compilers make of them.

Of GPT-3 6.7B as the book has it, scanned and moved in bfloat16; nothing is compiled here.
"""

from math import prod

import pytest

from meshproof.contract import leaves, spec_axes
from meshproof.planning.models import Model
from reference_impl.modifiers.precision import NarrowOnTheMove
from reference_impl.modifiers.rematerialisation import Rematerialised
from reference_impl.sizes.gpt_7b import TRANSFORMER
from reference_impl.sizes.stacked import Annotated
from reference_impl.strategies import (
    data_parallel,
    fsdp,
    fsdp_tensor_parallel,
    hsdp,
    sequence_parallel,
    tensor_parallel,
    zero1,
)
from reference_impl.truth import Adam
from tests.unit.planning.plans import plan, question

GPT = Model(
    "gpt-3-6.7b",
    sum(prod(shape) for _, shape in leaves(TRANSFORMER.shapes)),
    TRANSFORMER.blocks,
    TRANSFORMER.embed,
    TRANSFORMER.mlp,
    heads=TRANSFORMER.heads,
    vocabulary=TRANSFORMER.vocab,
    tied=True,
    length=TRANSFORMER.length,
)
ROUNDS = {"all-reduce": 2, "all-gather": 1, "reduce-scatter": 1}
"""All-gathers of a tensor that an operation takes as long as."""

EXACT, NEAR = 1e-9, 0.002
"""To the byte; and to what positions, norms and biases of the book move otherwise than a layer's matrices."""


def form(page, mesh, recomputes):
    """A page of the book on a mesh, with 8 sequences on each part of the batch."""
    network = NarrowOnTheMove(Rematerialised(TRANSFORMER) if recomputes else TRANSFORMER)
    ways = mesh.get("data", 1) * mesh.get("replica", 1)
    return Annotated(page.PAGE, mesh, Adam(), network, batch_size=8 * ways)


def budgeted(book, axis, payload=("parameters", "gradients", "activations")):
    """Bytes that a page's budget moves over an axis in a step, each as often as an all-gather of it would take."""
    return sum(
        ROUNDS[line.operation] * line.bytes
        for line in book.contract.step
        if line.axes == (axis,) and line.payload in payload
    )


def planned(layout, book):
    """The same of a plan, by axis."""
    asked = question(GPT, "h100", prod(book.mesh_axes.values()), book.batch_size * GPT.length)
    return {line.axis: line.bytes for line in plan(asked, **layout).traffic}


@pytest.mark.parametrize("recomputes", [False, True])
@pytest.mark.parametrize(
    ("page", "mesh", "layout", "near"),
    [
        (data_parallel, {"data": 8}, {"data": 8}, EXACT),
        (fsdp, {"data": 8}, {"zero": 3, "data": 8}, NEAR),
        (hsdp, {"replica": 2, "data": 4}, {"zero": 3, "replica": 2, "data": 4}, NEAR),
    ],
    ids=["data_parallel", "fsdp", "hsdp"],
)
def test_batch_axes_move_what_the_budget_lists(page, mesh, layout, near, recomputes):
    """Gradients and parameters; FSDP gathers layers twice where it recomputes, and once where it does not."""
    book = form(page, mesh, recomputes)
    for axis, size in planned(layout | {"recomputes": recomputes}, book).items():
        assert size == pytest.approx(budgeted(book, axis), rel=near), axis


def test_zero1_moves_what_accelerators_make_of_its_budget():
    """The page all-reduces gradients, as a CPU must; accelerators scatter them, which is a round less."""
    book = form(zero1, {"data": 8}, False)
    [size] = planned({"zero": 1, "data": 8}, book).values()
    assert size == pytest.approx(budgeted(book, "data") - 2 * GPT.parameters, rel=NEAR)


@pytest.mark.parametrize("recomputes", [False, True])
@pytest.mark.parametrize("mesh", [{"data": 1, "model": 8}, {"data": 4, "model": 2}], ids=["8", "4x2"])
def test_tensors_move_what_the_budget_of_sequence_parallelism_lists(mesh, recomputes):
    """Activations at the borders of both blocks of a layer: 8 times [t, D], 11 where it is recomputed, to the byte."""
    book = form(sequence_parallel, mesh, recomputes)
    layout = {"data": mesh["data"], "tensor": mesh["model"], "recomputes": recomputes}
    assert planned(layout, book)["tensor"] == budgeted(book, "model", ("activations",))


def test_tensors_without_it_move_the_same_but_for_what_is_recomputed():
    """All-reduces in place of both; of a recomputed layer one of two; what is scattered is gathered again."""
    for recomputes, rounds in ((False, 8), (True, 10)):
        book = form(tensor_parallel, {"data": 1, "model": 8}, recomputes)
        size = planned({"tensor": 8, "recomputes": recomputes}, book)["tensor"]
        assert budgeted(book, "model") == size * rounds / (11 if recomputes else 8)


@pytest.mark.parametrize("recomputes", [False, True])
def test_both_move_what_both_budgets_list(recomputes):
    """The book does not split the embedding by tensors, which a plan does: 3 % of what the data axis moves."""
    book = form(fsdp_tensor_parallel, {"data": 4, "model": 2}, recomputes)
    size = planned({"zero": 3, "data": 4, "tensor": 2, "recomputes": recomputes}, book)["data"]
    assert 0.96 < size / budgeted(book, "data") < 1


@pytest.mark.parametrize(
    ("page", "mesh", "layout"),
    [
        (data_parallel, {"data": 8}, {"data": 8}),
        (zero1, {"data": 8}, {"zero": 1, "data": 8}),
        (fsdp, {"data": 8}, {"zero": 3, "data": 8}),
        (hsdp, {"replica": 2, "data": 4}, {"zero": 3, "replica": 2, "data": 4}),
    ],
    ids=["data_parallel", "zero1", "fsdp", "hsdp"],
)
def test_state_is_what_the_layouts_hold(page, mesh, layout):
    """Parameters and moments of a device: every leaf's bytes, divided by the axes of its declared spec."""
    book = form(page, mesh, False)
    shapes = dict(leaves(TRANSFORMER.shapes))
    held = 0
    for part, copies in (("parameters", 1), ("optimizer_state", 2)):
        for path, shape in shapes.items():
            specs = getattr(book.contract, part)
            spec = next(spec for pattern, spec in specs.items() if pattern.endswith(path) or pattern == path)
            held += copies * 4 * prod(shape) // prod(mesh[axis] for axis in spec_axes(spec))
    asked = question(GPT, "h100", 8, book.batch_size * GPT.length)
    memory = plan(asked, **layout).memory
    assert memory.parameters + memory.moments == pytest.approx(held, rel=NEAR)
