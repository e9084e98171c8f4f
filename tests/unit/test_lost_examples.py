"""Which examples count, in words."""

from types import SimpleNamespace

import numpy as np
import pytest

from meshproof.observing.lost_examples import clearest, counted, divided, listed, replaced, several, weight

ONE = np.array([3.0, 4.0])


@pytest.mark.parametrize(
    ("mesh", "words"),
    [
        (ONE, "as on one device"),
        (ONE * 1.0005, "as on one device"),
        (ONE * 1.005, "nearly as on one device"),
        (ONE * 0, "not at all"),
        (ONE * 2, "2 times"),
        (-ONE, "-1 times"),
        (np.array([4.0, 3.0]), "otherwise than on one device"),
    ],
)
def test_a_part_counts_by_what_it_changes(mesh, words):
    """Within a thousandth; of what changes next to nothing on one device nothing is said."""
    assert weight(mesh, ONE, 1.0) == words
    assert weight(mesh, ONE, 5.0) == ""


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        (["as on one device"] * 8, ""),
        (["2 times"] * 8, ""),
        (["otherwise than on one device"] * 8, ""),
        (["otherwise than on one device", "2 times"], ""),
        (["as on one device", "nearly as on one device", "2 times"], ""),
        (["", *["as on one device"] * 2], ""),
        (["not at all"] * 2, "not at all"),
        (["as on one device"] * 7 + ["not at all"], "0 to 6 as on one device, 7 not at all"),
        (["not at all", "", "1.5 times"], "0 not at all, 2 1.5 times"),
        (["0.9 times", "1.2 times", "0.9 times"], "0 and 2 0.9 times, 1 1.2 times"),
    ],
)
def test_only_what_tells_parts_apart_is_said(weights, words):
    """All as they should, or all otherwise, is nothing about examples."""
    assert counted(weights) == words


def test_numbers_that_follow_each_other_are_a_range():
    """And others stand alone."""
    assert listed([0, 1, 2, 4, 6, 7]) == "0 to 2 and 4 and 6 to 7"


def field(shape, shard):
    """A field on devices."""
    return SimpleNamespace(shape=shape, sharding=SimpleNamespace(shard_shape=lambda _: shard))


def test_dimensions_are_divided_as_the_mesh_splits_them():
    """Between shards, and within each; under pmap by the devices; never along what is whole."""
    tokens = np.zeros((4, 16))
    between, within = divided({"t": tokens}, {"t": field((4, 16), (4, 4))})
    assert (between.dimension, between.called) == (1, "the 4 equal parts")
    assert np.array_equal(between.marks[3], np.arange(16) >= 12)
    assert within.called == "the 4 equal parts of each of 4 shards"
    assert np.array_equal(within.marks[3], np.arange(16) % 4 == 3)
    [rows] = divided({"t": np.zeros((8, 2))}, {"t": field((8, 1, 2), (1, 1, 2))})
    assert (rows.dimension, len(rows.marks)) == (0, 8)
    assert not list(divided({"t": tokens}, {"t": field((4, 16), (4, 16))}))
    assert not list(divided({"t": tokens}, {"t": tokens}))


def test_a_part_is_replaced_along_its_dimension():
    """All other elements stay."""
    marks = np.array([False, True])
    assert np.array_equal(replaced(np.zeros((3, 2)), np.ones((3, 2)), 1, marks), [[0, 1]] * 3)


USUAL = {name: np.ones(2) for name in ("the loss of step 1", "what step 1 leaves", *"ab")}


def changed(**leaves):
    """What two parts change, on the mesh by these factors of each part, and on one device."""
    by_name = {
        "the loss of step 1": (1, 1),
        "what step 1 leaves": leaves.pop("whole", (1, 1)),
        "a": (1, 1),
        "b": (1, 1),
    }
    factors = by_name | leaves
    return [
        [
            {name: np.multiply(factor[part], [1.0, 2.0]) for name, factor in factors.items()},
            dict.fromkeys(USUAL, ONE_TWO),
        ]
        for part in range(2)
    ]


ONE_TWO = np.array([1.0, 2.0])
UNLIKE = (np.array([2.0, 1.0]), np.array([2.0, 1.0]))


@pytest.mark.parametrize(
    ("leaves", "told"),
    [
        ({}, []),
        ({"whole": (2, 0), "a": (2, 0), "b": (2, 0)}, [("what step 1 leaves", "0 2 times, 1 not at all")]),
        ({"whole": UNLIKE, "b": (2, 0)}, [("b", "0 2 times, 1 not at all")]),
        ({"whole": (1, UNLIKE[0]), "b": (2, 0)}, [("b", "0 2 times, 1 not at all")]),
        (
            {"whole": (1, UNLIKE[0])},
            [("what step 1 leaves", "0 as on one device, 1 otherwise than on one device")],
        ),
    ],
)
def test_leaves_tell_what_all_of_them_do_not(leaves, told):
    """One leaf may have the gradient of one device's examples, where all others have that of all."""
    assert clearest(USUAL, changed(**leaves)) == told


def test_few_leaves_are_named():
    """And the others counted."""
    leaves = [f"what step 1 leaves of {name}" for name in "abcde"]
    assert several(["the loss of step 1"]) == "the loss of step 1"
    assert several(leaves[:2]) == "what step 1 leaves of a and of b"
    assert several(leaves) == "what step 1 leaves of a and of b and of c and of 2 more"
