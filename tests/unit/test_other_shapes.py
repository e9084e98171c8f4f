"""Tensors whose shape on the move is not that of the array that they are of."""

from dataclasses import replace
from math import prod

import pytest

from meshproof.adopting.seeing import Leaf
from meshproof.adopting.stacks import stacked
from meshproof.adopting.traffic import sorted_out, weights
from meshproof.hlo import Collective

MESH = {"data": 4, "model": 2}


def moved(operation, dimensions, tensors=1):
    """A collective of float32 tensors over data."""
    return Collective(
        operation, ("data",), tensors, tensors, 4 * tensors * prod(dimensions), "f32", operation, "backward"
    )


@pytest.mark.parametrize(
    ("seen", "shapes"),
    [
        ([(32, 2, 12)], [(24, 32)]),
        ([(32, 2, 12), (32, 24)], [(2, 12, 32), (24, 32)]),
        ([(32, 2, 11)], [(2, 11, 32)]),
    ],
    ids=["reshaped", "its own too", "others"],
)
def test_a_gradient_may_be_reduced_in_another_shape(seen, shapes):
    """Of as many elements, if the parameter's own shape is not reduced: t5x computes with kernels that it reshapes."""
    of = weights({"kernel": Leaf((32, 24), 4, ())}, None, {})
    found, _ = sorted_out([(moved("all-reduce", each), each) for each in seen], of, MESH, {"data"}, set())
    assert sorted(each.shape for each in found) == sorted(shapes)


def test_layers_of_several_parts_are_told_from_others_of_a_parts_shape():
    """Gemma's two gates lie in one array of each layer and are used one after the other: four of them and two others
    of their shape are gathered in a pass, of two layers."""
    split = {"gates": ((2, 2, 64, 128), (None, None, None, "data")), "out": ((2, 128, 64), (None, "data"))}
    leaves = {path: Leaf(shape, 4, spec) for path, (shape, spec) in split.items()}
    of = weights(leaves, None, {path: replace(leaf, spec=()) for path, leaf in leaves.items()})
    for passes in (1, 2):
        found = stacked([(moved("all-gather", (64, 128), 6 * passes), (64, 32))], of, MESH)
        tensors = {tuple(sorted(shape)): entry.tensors for entry, shape in found}
        assert tensors == {(2, 2, 32, 64): passes, (2, 32, 64): passes}
        assert sum(entry.bytes for entry, _ in found) == 6 * passes * 4 * 64 * 128
