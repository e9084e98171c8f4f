"""Whether all of a tree is too long: by a factor of which every leaf that can tell has as much."""

import numpy as np
import pytest

from meshproof.contract import Step, Trajectory
from meshproof.measures.lengths import ALL, GRADIENTS, LEAST, MULTIPLE, agreed, along, spread, trees

DRAWS = np.random.default_rng(7)
TRUE = {"a": DRAWS.normal(size=(16, 8)), "b": DRAWS.normal(size=8), "idle": np.zeros(4)}


def trained(gradients):
    """One step of Adam's first moment and of a count."""
    state = {f"mu/{path}": 0.1 * value for path, value in gradients.items()} | {"count": np.array(1)}
    return Trajectory(gradients, (Step(1.0, TRUE, state),))


def test_trees_are_gradients_and_moments():
    """By the names of parameters; what is beside them has none, and a tree of zeros no length."""
    found = trees(trained(TRUE))
    assert found.keys() == {GRADIENTS, "mu/… after step 1"}
    assert found["mu/… after step 1"].keys() == TRUE.keys()
    assert trees(trained({path: 0 * value for path, value in TRUE.items()})) == {}


def test_a_factor_is_found_in_noise():
    """The noise that a leaf of 128 elements has averages out."""
    noisy = {path: 0.98 * value + 0.05 * DRAWS.normal(size=value.shape) for path, value in TRUE.items()}
    seen = along(noisy, TRUE)
    assert seen.keys() == {"a", "b", ALL}
    assert seen[ALL] == pytest.approx(0.98, abs=0.02)


def test_the_spread_of_draws_is_what_rounding_explains():
    """And no less than the least."""
    draws = [trained({path: factor * value for path, value in TRUE.items()}) for factor in (0.99, 1.01)]
    assert spread(trained(TRUE), draws)[GRADIENTS][ALL] == pytest.approx(0.01)
    assert spread(trained(TRUE), [trained(TRUE)] * 2)[GRADIENTS][ALL] == LEAST


@pytest.mark.parametrize(
    ("seen", "factor"),
    [
        ({"a": 0.98, "b": 0.98, ALL: 0.98}, 0.98),
        ({"a": 1.02, "b": 1.015, ALL: 1.02}, 1.02),
        ({"a": 0.96, "b": 1.0, ALL: 0.98}, None),  # one leaf alone
        ({"a": 0.98, "loose": 1.3, ALL: 0.98}, 0.98),  # a leaf that cannot tell
        ({"a": 0.995, "b": 0.995, ALL: 0.995}, None),
        ({"loose": 0.9, ALL: 0.9}, None),
    ],
)
def test_a_factor_is_one_of_all_leaves_that_can_tell(seen, factor):
    """Beyond what rounding explains of the whole."""
    deviations = dict.fromkeys(("a", "b", ALL), 0.01 / MULTIPLE) | {"loose": 1.0}
    assert agreed(seen, deviations) == factor
