"""In which part a leaf is wrong, in words."""

import numpy as np
import pytest

from meshproof.measures.numerics import judge
from meshproof.measures.parts_of_leaves import place

TRUTH = np.random.default_rng(0).standard_normal((64, 8))
ALLOWED = np.full_like(TRUTH, 1e-6)


def but(where, values):
    """Truth with other values there."""
    other = TRUTH.copy()
    other[where] = values
    return other


@pytest.mark.parametrize(
    ("saw", "words"),
    [
        (
            np.roll(TRUTH, 8, 0),
            "of its 8 equal parts in dimension 0 8 have changed places: part 0 holds what part 7 sh",
        ),
        (np.tile(TRUTH[:8], (8, 1)), "of its 8 equal parts in dimension 0 all are alike, and should not be"),
        (
            TRUTH * np.repeat([1, 2, 3, 4], 2),
            "of its 4 equal parts in dimension 1 each is what it should be times a number of its own: 1, 2, 3, 4",
        ),
        (but(slice(8, None), 0), "in dimension 0 (of 0 to 63) it is 0 at 8 to 63, and right elsewhere"),
        (but(slice(8, None), 1), "in dimension 0 (of 0 to 63) it is wrong at 8 to 63, and right elsewhere"),
        (but((slice(None), 7), 1), "in dimension 1 (of 0 to 7) it is wrong at 7, and right elsewhere"),
        (but(np.r_[:5, 60:64], 1), "in dimension 0 (of 0 to 63) it is right at 5 to 59 alone"),
        (TRUTH + 1e-3, ""),
        (but(slice(1, None), 1), ""),
        (but(slice(8, None), TRUTH[8:] + 1.2e-6), ""),
        (but(np.r_[3:5, 9:12, 40:64], 1), ""),
    ],
)
def test_the_part_that_is_wrong_is_named(saw, words):
    """What a device makes of its own place; nothing where the error is everywhere, or here and there."""
    assert place(saw, TRUTH, ALLOWED)[: len(words) or None] == words


def test_a_number_has_no_parts():
    """A loss has no dimension; a vector of one element has no parts."""
    assert not place(np.array(2.0), np.array(1.0), np.array(1e-6))
    assert not place(np.array([2.0]), np.array([1.0]), np.array([1e-6]))


def test_a_message_says_the_part():
    """In place of "by more than rounding explains"; a factor of the whole leaf is said as before."""
    deviations = {"pos": ALLOWED}
    assert "truth: in dimension 0 (of 0 to 63) it is 0 at 8 to 63" in str(
        judge({"pos": but(slice(8, None), 0)}, {"pos": TRUTH}, deviations)
    )
    assert "it is 8 times truth" in str(judge({"pos": 8 * TRUTH}, {"pos": TRUTH}, deviations))
