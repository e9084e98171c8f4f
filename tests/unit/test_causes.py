"""What the numbers of a leaf tell of why it is wrong."""

import numpy as np
import pytest

from meshproof.measures.numerics import judge

RNG = np.random.default_rng(5)
WEIGHTS, STEP = RNG.standard_normal((2, 3, 4))


@pytest.mark.parametrize(
    ("saw", "said"),
    [
        (0.9998 * WEIGHTS, "it is 0.9998 times truth, as another weight decay leaves it"),
        (0.9998 * WEIGHTS + 2e-6 * STEP, "it is 0.9998 times truth, as another weight decay leaves it"),
        (2 * WEIGHTS, "it is 2 times truth: a sum instead of a mean, or reduced twice or never"),
    ],
)
def test_a_factor_is_told_in_as_many_digits_as_tell_it_from_1(saw, said):
    """Weights that decay otherwise too, which a few steps hardly change, beside a little that differs otherwise."""
    verdict = judge({"w": saw}, {"w": WEIGHTS}, {"w": 1e-9 * WEIGHTS}, began={"w": WEIGHTS - STEP / 100})
    assert said in str(verdict)
