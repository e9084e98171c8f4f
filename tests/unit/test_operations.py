"""Layouts cover what they must, references bound what they must, and a table that cannot be used is refused."""

from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from meshproof.cases import REFERENCE
from meshproof.operations import Operand, Operation, normal
from meshproof.operations.layouts import MESHES, MOST, aligned, choices_of, covering, every_layout, specs_of
from meshproof.operations.loading import OWN, TableError, load_table
from meshproof.operations.observing import WANTED, Trial, changed, compared, observe_operation
from meshproof.operations.programs import current_mesh
from meshproof.operations.references import Reference
from meshproof.operations.table import operations, stacked_layers
from meshproof.run.operations import chosen_table


def test_every_spec_of_a_matrix_is_listed():
    """Both axes on either dimension, on both in either order, or on none."""
    assert len(list(specs_of((8, 16), (2, 4)))) == 11
    assert len(list(specs_of((8, 16), (8,)))) == 3


def test_a_spec_that_does_not_divide_is_left_out():
    """Six rows are not split over four devices."""
    assert all("b" not in spec[0] for spec in specs_of((6, 16), (2, 4)))


def test_a_covering_has_every_pair_and_every_spec():
    """Whatever two parts of any layout choose, some layout of the covering chooses both."""
    layouts = every_layout([(8, 16), (16,)], (8,))
    chosen = covering(layouts)

    def pairs(those):
        return {pair for layout in those for pair in product(choices_of(layout), repeat=2)}

    assert pairs(chosen) == pairs(layouts) and len(chosen) < len(layouts) / 5
    for place in (0, 1):
        assert {each.specs[place] for each in chosen} == {each.specs[place] for each in layouts}
    assert {each.mesh for each in chosen} == set(MESHES)
    assert covering(layouts) == chosen


def test_layouts_that_split_all_operands_alike_come_first():
    """By both axes, of the first dimensions of a length; then those that split the first operand alone."""
    first, *others = (layout.name for layout in aligned([(8, 4), (4, 8)]))
    assert first == "a=2,b=4 Explicit: P(('a', 'b'), None) P(None, ('a', 'b'))"
    assert "a=4,b=2 Explicit: P('b', 'a') P('a', 'b')" in others and len({first, *others}) == 1 + len(others)
    assert "a=2,b=4 Explicit: P('a', None) P(None, None)" in others


def test_an_operation_runs_on_explicit_axes_that_split_it():
    """Where a covering has nothing but layouts that JAX refuses there, others are tried; what is refused stays told."""
    [stack] = [each for each in operations() if each.name == "stack"]
    seen = observe_operation(stack, False, lambda told: None)
    split = {name for name, layout in seen.layouts.items() if layout.axis_type == "Explicit" and layout.splits}
    run = {point.layout for point in seen.points if point.fate == "right"}
    assert len(run & split) == WANTED and {point.layout for point in seen.points} == seen.layouts.keys()


def test_what_is_too_much_is_drawn_the_same_every_time():
    """Every spec of every operand on every mesh is there."""
    shapes = [(8, 8, 8), (8, 8, 8)]
    layouts = every_layout(shapes, (8, 8))
    assert layouts == every_layout(shapes, (8, 8)) and MOST / 2 < len(layouts) < 2 * MOST
    for mesh in MESHES:
        assert {each.specs[1] for each in layouts if each.mesh == mesh} == set(specs_of(shapes[1], mesh))


def test_a_run_has_as_many_points_as_promised():
    """At least 2,000 of an operation, a layout and a direction, by default."""
    points = 0
    for operation in operations():
        shapes = [operand.shape for operand in operation.operands]
        points += len(covering(every_layout(shapes, shapes[0]))) * (1 + bool(operation.differentiated))
    assert points > 2000
    assert len(list(stacked_layers())) > 30


def test_a_bound_holds_for_float32_and_not_for_less():
    """Of a softmax, float32 on one device is within its bound, and far from it in sixteen bits or with a lost term."""
    operand = Operand((8, 16), draws=(normal,))

    def softmax(x):
        return np.exp(x) / np.exp(x).sum(-1, keepdims=True)

    operation = Operation(
        "softmax", lambda x: jnp.exp(x) / jnp.exp(x).sum(-1, keepdims=True), (operand,), softmax, False
    )
    [run] = Reference(operation).expected()
    [true], [deviation] = run.arrays[0], run.deviations[0]

    def margin(saw):
        return np.linalg.norm(saw - true) / (6 * np.linalg.norm(deviation))

    x = run.operands[0]
    assert margin(softmax(x)) < 0.2
    assert margin(softmax(x.astype(np.float16)).astype(np.float32)) > 1
    assert margin(np.exp(x) / np.exp(x[:, 1:]).sum(-1, keepdims=True)) > 100


@pytest.mark.parametrize("at", range(4))
def test_infinity_is_right_where_the_judge_has_it_alone(at):
    """Another sign, a number in its place, and one in the place of a number are wrong."""
    true, bound = np.array([1.0, -np.inf, np.nan, 2.0]), np.array([1e-7, 0, 0, 1e-7])
    saw = true.astype(np.float32)
    assert compared(saw, true, bound, "result") == ("", 0.0)
    saw[at] = (np.nan, np.inf, 0.0, 2.1)[at]
    assert compared(saw, true, bound, "result")[0]


def test_complex_numbers_are_compared_in_both_parts():
    """An imaginary part that is off by far less than the number is large."""
    true, bound = np.array([1 + 1j, 2 - 1j]), np.full(2, 1e-7)
    assert compared(true.astype(np.complex64), true, bound, "result") == ("", 0.0)
    assert "more than rounding explains" in compared((true + 1e-4j).astype(np.complex64), true, bound, "result")[0]


def test_a_gradient_that_is_wrong_on_one_device_is_noticed():
    """By the slope of the NumPy judge."""
    operation = Operation("half", lambda x: x / 2 + jax.lax.stop_gradient(x) / 2, (Operand((8,)),), lambda x: x)
    reference = Reference(operation)
    assert any("expected slope" in fault for fault in reference.faults(reference.expected()))


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("def operations():\n    return [1]\n", "operations() lists 1, expected Operations"),
        ("operations = None\n", "'NoneType' object is not callable"),
        ("x = 1\n", "no operations() or transforms() or programs() or stacked_layers() that lists any"),
        ("import nothing_like_it\n", "ModuleNotFoundError"),
        (
            "from meshproof.operations import Operand, Operation\n\n\ndef operations():\n"
            "    return [Operation('my op', abs, (Operand((8,)),))]\n",
            "named 'my op', expected the like of my_op2",
        ),
        (
            "from meshproof.operations import Operand, Operation\n\n\ndef operations():\n"
            "    return [Operation('op', abs, (Operand((8,)),))] * 2\n",
            "two are named op@operations",
        ),
    ],
)
def test_a_table_that_cannot_be_used_is_refused(tmp_path, source, said):
    """With its name and the reason."""
    table = tmp_path / "my_ops.py"
    table.write_text(source, encoding="utf-8")
    with pytest.raises(TableError) as refused:
        load_table(str(table))
    assert said in str(refused.value) and f"--operations {table}" in str(refused.value)


def test_a_table_that_is_not_there_is_refused(tmp_path):
    """With the place where it was sought."""
    with pytest.raises(TableError, match=r"expected a file .*my_ops\.py"):
        load_table(str(tmp_path / "my_ops.py"))


def fates(operation):
    """What became of each direction under any layout."""
    seen = observe_operation(operation, False, lambda layout: None)
    return {
        direction: {point.fate for point in seen.points if point.direction == direction}
        for direction in ("forward", "gradient")
    }


@jax.custom_jvp
def only_forward(x):
    """Its gradient is refused."""
    return 2 * x


@only_forward.defjvp
def refused(primals, tangents):
    """On several devices."""
    if current_mesh().size > 1:
        raise NotImplementedError("no gradient on a mesh")
    return only_forward(*primals), 2 * tangents[0]


def test_a_gradient_alone_can_be_refused():
    """The forward direction is then judged by a program of its own."""
    operation = Operation("only_forward", only_forward, (Operand((8,)),), lambda x: 2 * x)
    assert fates(operation) == {"forward": {"right"}, "gradient": {"refused"}}
    wrong = replace(operation, judge=None, function=lambda x: only_forward(x) * (1 + (current_mesh().size > 1)))
    assert fates(wrong) == {"forward": {"wrong"}, "gradient": {"refused"}}


def test_what_fails_while_it_runs_is_broken(monkeypatch):
    """That is no refusal, whatever is raised: the layout compiled."""

    def fails(*_):
        raise ValueError("out of memory")

    monkeypatch.setattr(Trial, "verdicts", fails)
    operation = Operation("twice", lambda x: 2 * x, (Operand((8,)),))
    assert fates(operation) == {"forward": {"broken"}, "gradient": {"broken"}}


def test_an_operand_that_is_overwritten_is_noticed():
    """What was not donated must be as before."""
    x = jnp.arange(8.0)
    assert changed([(0, x, np.arange(8, dtype=np.float32))]) == ("", 0.0)
    assert "operand 0 is not what it was" in changed([(0, x, np.ones(8, np.float32))])[0]


@pytest.mark.parametrize(
    ("named", "devices", "chosen"), [(None, 8, OWN), (None, 1, ""), ("none", 1, ""), ("my", 8, "my")]
)
def test_a_table_is_run_where_there_are_devices_for_its_meshes(named, devices, chosen):
    """The book's own is left out where there are not."""
    assert chosen_table(options(named, devices)) == chosen


def test_a_table_that_is_named_needs_its_devices():
    """Both numbers are said."""
    with pytest.raises(TableError, match=r"--operations my --devices 4: operations are run on 8 virtual devices"):
        chosen_table(options("my", 4))


def options(named, devices):
    """What pytest hands over."""
    given = {"operations": named, "devices": devices, "target": None, "impl": REFERENCE}
    return SimpleNamespace(getoption=given.get)
