"""Vectors of which each device of another axis reduces its part."""

from meshproof.adopting.traffic import Weight
from meshproof.adopting.vectors_in_part import used_in_part
from meshproof.hlo import Collective

MESH, BATCH = {"data": 2, "model": 4}, {"data"}


def vector(path, size, axes=()):
    """A parameter of one dimension."""
    return Weight(path, (size,), 4, *[(axes,)] * 3)


def reduced(size, tensors=1, axes=("data",), phase="backward"):
    """What a step reduces of a vector."""
    return Collective("all-reduce", axes, 1, tensors, 4 * size * tensors, "f32", "all-reduce", phase), (size,)


def parts(of, moved):
    """The axes of each in use."""
    return {weight.path: weight.in_use[0] for weight in used_in_part(of, moved, MESH, BATCH)}


def test_a_bias_behind_a_split_kernel_is_used_in_part():
    """Also where its part has another bias's shape; one that is reduced whole, or split at rest, stays as it is."""
    up, down = vector("up", 1024), vector("down", 256)
    assert parts([up, down], [reduced(256, 2)]) == {"up": ("model",), "down": ()}
    assert parts([up, down], [reduced(256), reduced(1024)]) == {"up": (), "down": ()}
    assert parts([up], [reduced(256)]) == {"up": ("model",)}
    assert parts([vector("up", 1024, ("model",))], [reduced(256)]) == {"up": ("model",)}


def test_a_bias_that_nobody_reduces_stays_whole():
    """No part of it is reduced over the batch, or it is another axis's, or the forward pass's."""
    up, down = vector("up", 1024), vector("down", 256)
    for moved in ([reduced(256)], [reduced(256), reduced(256, axes=("model",))]):
        assert parts([up, down], moved) == {"up": (), "down": ()}
    assert parts([up], [reduced(256, phase="forward")]) == {"up": ()}
