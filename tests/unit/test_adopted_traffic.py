"""What `meshproof adopt` takes tensors for that are neither parameters nor gradients of one reduction."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from meshproof.adopting.batch_statistics import in_step
from meshproof.adopting.contracts import kept_in, masks, repetitions
from meshproof.adopting.mixed_examples import mixed
from meshproof.adopting.questions import shown_whole
from meshproof.adopting.raveled import weighed
from meshproof.adopting.seeing import Layouts, Leaf
from meshproof.adopting.stacks import stacked
from meshproof.adopting.tables import tables
from meshproof.adopting.theory import Theory, scalars
from meshproof.adopting.traffic import Seen, gradient_shapes, lines, sorted_out, vectors, weights
from tests.unit.test_adopt import moved

MESH = {"data": 8}


def test_a_table_that_is_read_in_part_is_reduced_once():
    """The rows of a device over the batch, then the tables over what splits the tokens, as a sum or as a gather."""
    table, mesh = Leaf((8, 16), 4, ()), {"data": 2, "context": 4}
    of = weights({"table": table}, None, {"table": table})
    rows, other = moved("all-reduce", ("data",), (2, 16)), moved("all-reduce", ("data", "context"), (16, 16))
    summed = moved("all-reduce", ("context",), (8, 16))
    gathered = moved("all-gather", ("context",), (8, 16), realized_as="dynamic-update-slice + all-reduce")
    for whole in (summed, gathered):
        left, found, paths = tables([rows, whole, other], of, mesh, {"data", "context"}, {"context"})
        assert (left, paths) == ([other], {"table"})
        assert [(line.axes, line.bytes) for line in lines(found)] == [(("context",), 512), (("data",), 128)]
    assert tables([summed, other], of, mesh, {"data", "context"}, {"context"}) == ([summed, other], [], frozenset())


def test_a_complex_gradient_is_of_two_parameters():
    """Of the real and the imaginary part, which a compiler adds up as one."""
    of = weights({name: Leaf((4, 8), 4, ()) for name in ("re", "im")}, None, {})
    summed, shape = moved("all-reduce", ("data",), (4, 8))
    [seen], unsaid = sorted_out([(replace(summed, dtype="c64", bytes=256), shape)], of, MESH, {"data"}, set())
    assert (seen.lane[2], seen.tensors, seen.bytes, unsaid) == ("gradients", 2, 256, [])


@pytest.mark.parametrize(
    ("phase", "scattered", "payloads"),
    [
        ("forward", set(), ["activations", "activations"]),
        ("other", set(), ["activations", "activations"]),
        ("backward", set(), ["activations", "gradients"]),
        ("forward", {"data"}, ["activations", "gradients"]),
    ],
)
def test_features_of_a_parameters_shape_are_no_gradient(phase, scattered, payloads):
    """A loss over the whole batch gathers them forward, and scatters what comes back."""
    of = weights({"w": Leaf((32, 16), 4, ())}, None, {})
    both = [moved("all-gather", ("data",), (4, 16), phase), moved("reduce-scatter", ("data",), (32, 16))]
    found, _ = sorted_out(both, of, MESH, {"data"}, scattered)
    assert [each.lane[2] for each in found] == payloads


def test_vectors_of_the_forward_pass_are_metrics():
    """A router's shares of eight experts are, also where a bias has eight numbers; its own gradient is not."""
    lane = ("all-reduce", ("data",))
    step, forward = Seen((*lane, "gradients"), (8,), 96, 3), Seen((*lane, "metrics"), (8,), 64, 2)
    assert vectors([step], [forward]) == [
        Seen((*lane, "metrics"), (8,), 64, 2),
        Seen((*lane, "gradients"), (8,), 32, 1),
    ]
    assert vectors([step], []) == [step]
    one = Seen((*lane, "gradients"), (8,), 32, 1)
    assert lines(vectors([step, one], [forward])) == lines([forward, one, one])


def test_scalars_beyond_those_of_the_forward_pass_are_gradients():
    """A learned temperature has one; the loss stays a metric, and so does what no parameter explains."""
    of = weights({"temperature": Leaf((1,), 4, ()), "w": Leaf((8, 8), 4, ())}, None, {})
    theory, lane = Theory({"data": 8}, of, {"data"}, {}), ("all-reduce", ("data",))
    loss, step = Seen((*lane, "metrics"), (), 4, 1), Seen((*lane, "metrics"), (), 8, 2)
    gradient = Seen((*lane, "gradients"), (), 4, 1)
    assert scalars(theory, [step], [loss]) == scalars(theory, [step], None) == [gradient, loss]
    assert scalars(theory, [loss, loss], [loss]) == [gradient, loss]
    assert scalars(theory, [step], [step]) == [step]
    assert scalars(theory, [loss], [loss]) == [loss]


def test_gradients_that_are_scattered_and_shown_whole_are_asked_for():
    """Over the axis of the scatter; one leaf that is shown in shards is enough."""
    whole, split = Leaf((8, 8), 4, ()), Leaf((8, 8), 4, (("data",),))
    seen = [Seen(("reduce-scatter", ("data",), "gradients"), (1, 8), 32, 1)]
    [question] = shown_whole({"w": whole, "u": whole}, seen)
    assert question.about == "gradients"
    assert question.text.startswith("w and u: shown whole over data, where the step reduce-scatters them; show the")
    reduced = [Seen(("all-reduce", ("data",), "gradients"), (8, 8), 256, 1)]
    for gradients, moves in (({"w": whole, "u": split}, seen), ({"w": whole}, reduced), ({}, seen)):
        assert list(shown_whole(gradients, moves)) == []


def test_what_moves_as_often_in_a_step_as_forward_is_of_examples():
    """Inputs that are mixed are; activations whose gradients come back, or that move over another axis, are not."""
    permuted = Seen(("collective-permute", ("data",), "activations"), (8, 16), 512, 1)
    gathered = Seen(("all-gather", ("data",), "activations"), (64, 12), 3072, 1)
    back = Seen(("reduce-scatter", ("data",), "activations"), (8, 12), 3072, 1)
    for each in (permuted, gathered):
        named = replace(each, lane=(*each.lane[:2], "examples"))
        assert mixed([each], [each, each], {"data"}) == ([each], [each, each])
        assert mixed([each], [each], {"data"}) == ([named], [named])
        assert mixed([each], [each], {"model"}) == ([each], [each])
        assert mixed([each], [each, back], {"data"}) == ([each], [each, back])


def test_frozen_parameters_of_a_trained_ones_shape_have_no_gradient():
    """As the base of low-rank adapters: the one gradient of that shape is reduced once."""
    leaf, seen = Leaf((8, 8), 4, ()), [Seen(("all-reduce", ("data",), "gradients"), (8, 8), 256, 1)]
    of = weights({"base": leaf, "trained": leaf}, None, {})
    theory = Theory({"data": 8}, of, {"data"}, {}, frozenset({"base"}))
    assert [[weight.path for weight in of] for _, of in theory.classes()] == [["base"], ["trained"]]
    assert theory.times([of[1]], "data", seen) == 1
    assert theory.reduced(of[0]) == set()
    assert list(theory.in_theory(of[0])) == []


def test_what_is_implied_of_a_gradient_is_known_as_its_own():
    """Reduced otherwise over two axes, it is replaced once for both: what stands for it has its shape."""
    mesh = {"replica": 2, "data": 4}
    for leaf in (Leaf((24, 16), 4, ()), Leaf((24, 16), 4, (("data",),))):
        [weight] = weights({"table": leaf}, None, {"table": leaf})
        implied = list(Theory(mesh, [weight], {"replica", "data"}, {}).in_theory(weight))
        assert implied and {each.shape for each in implied} <= gradient_shapes(weight, mesh)


def test_a_field_of_truth_values_by_another_name_is_asked_for():
    """As resets of a recurrent state; and one of numbers that is called a mask."""
    some = np.array([True, False])
    batches = ({"valid": some}, {"reset": some}, {"reset": some | True}, {"pad_mask": some.astype(np.float32)})
    told = [[each.text.partition(":")[0] for each in masks(SimpleNamespace(host_batch=batch))] for batch in batches]
    assert told == [[], ["reset"], [], ["pad_mask"]]


def test_layers_that_move_in_a_scan_are_their_stack():
    """One before the scan and three in it; as often again, where they are computed again; not of another's shape."""
    stack, mesh = Leaf((4, 16, 8), 4, (None, ("data",))), {"data": 8}
    of = weights({"layers": stack, "scales": Leaf((4, 8), 4, ())}, None, {})

    def layers(times, shape=(2, 8)):
        return moved("all-gather", ("data",), shape, tensors=times)

    for several, tensors in (([layers(1), layers(3)], 1), ([layers(8)], 2)):
        [(entry, shape)] = stacked(several, of, mesh)
        assert (entry.tensors, entry.bytes, shape) == (tensors, 256 * tensors, (4, 2, 8))
    for other in ([layers(3)], [layers(4, (8, 8))]):
        assert stacked(other, of, mesh) == tuple(other)
    alike = weights({"layers": stack, "out": Leaf((16, 8), 4, (("data",),))}, None, {})
    assert stacked([layers(4)], alike, mesh) == (layers(4),)
    [(own, _), (entry, shape)] = stacked([layers(4), layers(5)], alike, mesh)
    assert (own.tensors, own.bytes, entry.tensors, entry.bytes, shape) == (1, 64, 2, 512, (4, 2, 8))


def test_gradients_of_layers_are_their_stack_whoever_updates_them():
    """As where each device updates one layer: its shard has the shape of a layer, and is not what all add up."""
    of = weights({"w": Leaf((8, 16, 16), 4, ())}, {"m/w": Leaf((8, 16, 16), 4, (("data",),))}, {})
    [(entry, shape)] = stacked([moved("all-reduce", ("data",), (16, 16), tensors=8)], of, {"data": 8})
    assert (entry.tensors, entry.bytes, shape) == (1, 8192, (8, 16, 16))
    gathered = moved("all-gather", ("data",), (1, 16, 16), tensors=1)
    assert stacked([gathered], of, {"data": 8}) == (gathered,)


def test_parameters_that_are_one_vector_move_as_one():
    """By a moment of their length, padded: whole in use, updated in shards, as its gradient is. No longer one is it,
    nor a whole one, nor one of them together with a frozen parameter, nor one beside moments of single leaves."""
    parameters = {"kernel": Leaf((16, 32), 4, ()), "bias": Leaf((7,), 4, ())}

    def of(length, spec=("data",), frozen=frozenset(), **others):
        state = {"mu/vector": Leaf((length,), 4, spec)} | others
        return weighed(Layouts(parameters, parameters, state, None), parameters, frozen, 8)

    [weight], gradients = of(520)
    assert (weight.shape, weight.in_use, weight.updated) == ((520,), ((),), (("data",),))
    assert gradients["mu/vector"].axes == {"data"}
    beside = {"nu/kernel": Leaf((16, 32), 4, ("data",))}
    for other in (
        of(519 + 8 * 128),
        of(520, ()),
        of(518),
        of(520 + 1024, frozen=frozenset({"bias"})),
        of(520, **beside),
    ):
        assert len(other[0]) == 2 and other[1] == parameters


def test_what_is_kept_in_less_is_asked_for():
    """Of every part; a random key and a float32 are what they are."""
    sight = SimpleNamespace(
        parameters={"base/w": Leaf((8,), 2, (), dtype="bfloat16"), "lora/a": Leaf((8,), 4, ())},
        gradients={"lora/a": Leaf((8,), 4, ())},
        optimizer_state={"mu/lora/a": Leaf((8,), 1, (), dtype="int8")},
        auxiliary={"key": Leaf((2,), 4, (), dtype="uint32")},
    )
    patterns, questions = kept_in(sight)
    assert {patterns[path] for path in patterns if path.startswith("parameters")} == {"bfloat16"}
    assert "bfloat16" in patterns.values() and "int8" in patterns.values() and len(patterns) == 2
    assert [question.text for question in questions] == [
        "parameters/base/w: kept in bfloat16: intended?",
        "optimizer_state/mu/lora/a: kept in int8: intended?",
    ]


def test_running_statistics_are_told_from_metrics():
    """By the arrays that the auxiliary state keeps of them: a mean and a variance, which has a mean of its own."""
    theory, lane = Theory({"data": 8}, [], {"data"}, {}), ("all-reduce", ("data",))
    seen, number = Seen((*lane, "metrics"), (10,), 120, 3), Seen((*lane, "metrics"), (), 28, 7)
    assert in_step(theory, [seen, number], [], [10, 10], 2, []) == [replace(seen, lane=(*lane, "statistics")), number]
    assert in_step(theory, [seen], [], [11, 11], 2, []) == [seen]


@pytest.mark.parametrize(
    ("shape", "spec", "by_device", "runs", "flops", "again", "times"),
    [
        ((64, 3), ("data",), False, 44, 110, False, (4, 1)),
        ((64, 3), ("data",), False, 44, None, False, (4, 1)),
        ((8, 8, 3), ("data",), True, 44, 110, False, (4, 1)),
        ((64, 3), ("data",), False, 30, 150, True, (2, 1)),
        ((64, 3), ("data",), False, 48, 120, True, (4, 1)),
        ((64, 3), ("data",), False, 14, 140, True, (1, 1)),
        ((64, 3), ("data",), False, 22, 220, False, (1, 2)),
        ((24, 3), ("data",), False, 22, 220, False, (1, 2)),
        ((64, 3), ("data",), False, 44, 220, False, (2, 2)),
        ((64, 3), ("data",), False, 22, None, False, (2, 1)),
        ((64, 3), ("data",), False, 11, 110, False, (1, 1)),
        ((64, 3), ("data",), False, 12, 84, False, (1, 1)),
    ],
)
def test_microbatches_and_evaluations_are_known_by_their_products(shape, spec, by_device, runs, flops, again, times):
    """Under pmap, which has a dimension of devices, too; and beside layers that are computed again. Evaluations of the
    whole batch multiply as much each time, microbatches all together as much as one."""
    step = SimpleNamespace(runs=runs, flops=flops, rematerialises=again)
    batch, mesh = {"x": Leaf(shape, 4, spec)}, {"data": 8}
    sight = SimpleNamespace(
        forward=SimpleNamespace(runs=4, flops=40), step=step, batch=batch, mesh=mesh, device_dimension=by_device
    )
    assert repetitions(sight) == times
