"""What a plan says of each array and each collective is what every page of the book declares, without a compiler."""

import re
from collections import Counter
from dataclasses import replace
from math import prod

import pytest

from meshproof.contract import Proposal, leaves, spec_axes
from meshproof.planning.arrays import kept_for, parameters_of
from meshproof.planning.lanes import lanes_of
from meshproof.planning.layouts import Layout
from meshproof.planning.models import Model, PlanError
from meshproof.planning.proposing import Piece, proposal
from meshproof.planning.reading import sizes_of
from reference_impl.proposals import proposed
from tests.unit.planning.plans import question

MODEL = Model("one", 5.8e5, 3, 128, 320, heads=16, vocabulary=1000, tied=True, length=32)
TOKENS = 64 * 32
LAYOUTS = [
    Layout(),
    *(Layout(zero, data=8) for zero in range(4)),
    Layout(3, replica=2, data=4),
    Layout(3, replica=4, data=2),
    Layout(tensor=8),
    Layout(data=4, tensor=2),
    Layout(data=2, tensor=4),
    Layout(3, data=2, tensor=4),
    Layout(3, data=4, tensor=2),
    Layout(1, data=4, tensor=2),
    Layout(3, replica=2, data=2, tensor=2),
]
IN_BOOK = {"data": "data", "replica": "replica", "tensor": "model"}


def built(layout, precision):
    """The book's strategy, its parameters as a plan sees them, and the model that they are of."""
    asked = question(MODEL, "h100", layout.devices, TOKENS, precision)
    form = proposed(Proposal(**proposal(asked, Piece(layout, TOKENS, 1), "adam")))
    shapes = {path: tuple(shape) for path, shape in leaves(form.network.shapes)}
    sizes = sizes_of(shapes, {"x": ((64, 32), "int32")})
    sizes.pop("examples")
    model = Model("the program", **sizes)
    return asked, form, parameters_of(shapes, model, layout), model


@pytest.mark.parametrize("precision", ["mixed", "float32"])
@pytest.mark.parametrize("recomputes", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: f"{layout.name} {layout.mesh}")
def test_the_book_declares_what_a_plan_says(layout, recomputes, precision):
    """Into how many parts each parameter, gradient and moment is split; and the bytes of every collective."""
    layout = replace(layout, recomputes=recomputes)
    asked, form, parameters, model = built(layout, precision)
    for part, least in (("parameters", 3), ("gradients", 2), ("optimizer_state", 1)):
        for each in parameters:
            path = f"mu/{each.path}" if part == "optimizer_state" else each.path
            declared = prod(form.mesh_axes[axis] for axis in spec_axes(form.contract.spec(part, path)))
            assert each.ways(layout, least) == declared, (part, each)
    budget = Counter()
    for line in form.contract.step:
        budget[line.operation, line.axes] += line.bytes
    planned = lanes_of(parameters, model, layout, TOKENS, asked.precision)
    assert {(name, (IN_BOOK[axis],)): size for (name, axis), size in planned.items()} == budget


@pytest.mark.parametrize(
    ("layout", "changed", "message"),
    [
        (
            Layout(3, data=8),
            {"d_ff": 128, "parameters": 4.5e5},
            "d_ff and d_model are both 128: shapes do not tell which dimension is split",
        ),
        (Layout(tensor=8), {"heads": 1}, "the width of a head and d_model are both 128"),
        (Layout(tensor=8), {"vocabulary": 32}, "a sequence and the vocabulary are both 32: shapes do not tell"),
    ],
)
def test_two_sizes_that_are_one_are_refused(layout, changed, message):
    """With the size and both names; where nothing is split they may be one."""
    model = replace(MODEL, **changed)
    shapes = {"table": (1000, 128)}
    with pytest.raises(PlanError, match=re.escape(message)):
        parameters_of(shapes, model, layout)
    assert parameters_of(shapes, model, Layout(data=8))


def test_a_moment_is_of_the_parameter_that_ends_its_path():
    """Where shapes are alike; else of one of its shape, whatever it is called."""
    _, _, parameters, _ = built(Layout(3, data=8), "float32")
    last = {"path": "mu/block_1/attention/value/kernel", "shape": [128, 16, 8]}
    assert kept_for(last, parameters).path == "block_1/attention/value/kernel"
    assert kept_for({"path": "0/7", "shape": [1000, 128]}, parameters).path == "token_embedding/embedding"
