"""The truth draws what JAX draws, bit for bit."""

import jax
import numpy as np
import pytest

from reference_impl.truth.threefry import draw_bernoulli, draw_bits, fold_in, make_key

SEEDS, STEPS, SITES, SHAPE = (0, 7, 2**31 + 5), (0, 1, 2), (0, 3), (5, 7, 3)


@pytest.mark.parametrize("seed", SEEDS)
def test_keys_bits_and_masks_are_jaxs(seed):
    """Keys folded twice, their bits, and Bernoulli draws of several chances are the same in NumPy and in JAX."""
    for step in STEPS:
        for site in SITES:
            theirs = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed, impl="threefry2x32"), step), site)
            ours = fold_in(fold_in(make_key(seed), step), site)
            assert tuple(jax.random.key_data(theirs).tolist()) == ours
            assert np.array_equal(jax.random.bits(theirs, SHAPE), draw_bits(ours, SHAPE))
            for chance in (0.1, 0.5, 0.9):
                assert np.array_equal(jax.random.bernoulli(theirs, chance, SHAPE), draw_bernoulli(ours, chance, SHAPE))


def test_the_published_vector_is_met():
    """Random123's known answer for an all-zero key and counter: 6b200159 99ba4efe."""
    assert fold_in((0, 0), 0) == (0x6B200159, 0x99BA4EFE)
