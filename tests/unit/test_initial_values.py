"""Initial values are those of one device, or other draws of the same distribution."""

import numpy as np
import pytest

from meshproof.measures.initial_values import are_same, wrong_draws
from meshproof.measures.layout import LeafLayout, Shard

SHAPE, DEVICES = (64, 32), 8
INDICES = [((0, 64), (4 * place, 4 * place + 4)) for place in range(DEVICES)]
LAYOUT = (LeafLayout("w", SHAPE, 4, "", tuple(Shard(n, index, (64, 4), 1024) for n, index in enumerate(INDICES))),)


def draw(seed, scale=1.0, shift=0.0, kind="normal"):
    """A leaf of another stream."""
    return (getattr(np.random.default_rng(seed), kind)(size=SHAPE) * scale + shift).astype(np.float32)


def problems(seen, alone):
    """What is said of one leaf."""
    return list(wrong_draws({"w": seen}, {"w": alone}, LAYOUT))


@pytest.mark.parametrize("kind", ["normal", "random", "standard_exponential"])
def test_another_stream_is_no_fault(kind):
    """Of whatever distribution; 300 pairs, none is refused."""
    assert [told for seed in range(300) for told in problems(draw(seed, kind=kind), draw(seed + 1000, kind=kind))] == []


@pytest.mark.parametrize("shape", [(), (1,), (2,), (40,)])
def test_a_few_values_have_no_distribution(shape):
    """Other draws of a small leaf are no fault; another constant is."""
    few = [np.asarray(np.random.default_rng(seed).normal(size=shape), np.float32) for seed in range(40)]
    assert [told for one in few for told in wrong_draws({"w": one}, {"w": few[0]}, ())] == []
    constant = list(wrong_draws({"w": np.ones(shape)}, {"w": np.zeros(shape)}, ()))
    assert len(constant) == (np.prod(shape) > 1)


def test_truth_values_are_compared_too():
    """As any other leaf."""
    assert are_same(np.array([True, False]), np.array([True, False])) and not are_same(
        np.array([True]), np.array([False])
    )


def test_last_digits_are_no_other_stream():
    """As another program leaves them."""
    alone = draw(0)
    assert are_same(np.nextafter(alone, np.float32(9)), alone) and not are_same(alone * 1.01, alone)


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (np.tile(draw(1)[:, :4], (1, DEVICES)), "saw the same in ((0, 64), (0, 4)) and ((0, 64), (4, 8))"),
        (draw(1, scale=8**0.5), "saw 2.8"),
        (draw(1, scale=1.2), "that of another shape"),
        (draw(1, shift=0.3), "expected values about"),
        (np.zeros(SHAPE, np.float32), "saw 0, 0 times"),
        (draw(1)[:, :4], "w: expected shape (64, 32), as on one device, saw shape (64, 4)"),
    ],
    ids=["same key", "fan-in of the shard", "a fifth too wide", "shifted", "zeros", "another shape"],
)
def test_what_is_wrong_is_named(seen, words):
    """The shards that are alike, the scale, the mean."""
    [told] = problems(seen, draw(0))
    assert words in told


def test_a_constant_must_be_that_constant():
    """A bias of zeros, a scale of ones; and shards of one number are alike by right."""
    ones = np.ones(SHAPE, np.float32)
    assert problems(ones, ones) == []
    [told] = problems(ones * 2, ones)
    assert "expected 1 everywhere, as on one device, saw 2 first" in told


def test_shards_that_are_alike_on_one_device_too_are_no_fault():
    """A table that repeats itself."""
    repeated = np.tile(draw(0)[:, :4], (1, DEVICES))
    assert problems(repeated + 0, repeated) == []
    assert problems(np.tile(draw(1)[:, :4], (1, DEVICES)), repeated) == []


def test_a_leaf_that_is_missing_is_told():
    """By its path."""
    assert list(wrong_draws({}, {"w": draw(0)}, LAYOUT)) == [
        "w: expected shape (64, 32), as on one device, saw no such leaf"
    ]
