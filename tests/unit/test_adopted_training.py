"""What a few steps tell of a trainer's parameters: which it leaves alone, and which it trains alike."""

from types import SimpleNamespace

import numpy as np
import pytest

from meshproof.adopting.training import frozen_in, trained_alike

START = {"a": np.zeros(2), "b/a": np.zeros(2), "c": np.ones(3)}


def steps(last, first_moments=None, last_moments=None):
    """Two steps, with the moments of each."""
    return (
        SimpleNamespace(parameters=START, optimizer_state=first_moments or {}),
        SimpleNamespace(parameters=START | last, optimizer_state=last_moments or {}),
    )


@pytest.mark.parametrize(
    ("last", "before", "after", "frozen"),
    [
        ({"c": np.zeros(3)}, {}, {}, {"a", "b/a"}),
        ({}, {}, {}, set()),
        ({"c": np.zeros(3)}, {"mu/b/a": np.ones(2)}, {"mu/b/a": np.full(2, 2.0)}, {"a"}),
        ({"c": np.zeros(3)}, {"mu/b/a": np.zeros(2), "count": 1}, {"mu/b/a": np.zeros(2), "count": 2}, {"a", "b/a"}),
    ],
)
def test_what_no_step_changes_is_frozen_unless_its_moment_moves(last, before, after, frozen):
    """The longest name counts; where nothing changes at all, a rate begins at 0."""
    assert frozen_in(START, steps(last, before, after)) == frozen


@pytest.mark.parametrize(
    ("last", "moments", "alike"),
    [
        ({"a": np.ones(2), "b/a": np.ones(2)}, {}, {"b/a": "a"}),
        ({"a": np.ones(2), "b/a": np.full(2, 2.0)}, {}, {}),
        ({}, {}, {}),
        ({"a": np.ones(2), "b/a": np.full(2, 2.0)}, {"mu/a": np.ones(2), "mu/b/a": np.ones(2)}, {"b/a": "a"}),
        ({"a": np.ones(2), "b/a": np.ones(2)}, {"mu/a": np.ones(2), "mu/b/a": np.zeros(2)}, {}),
    ],
)
def test_equal_moments_are_of_equal_gradients(last, moments, alike):
    """Without moments, what is added."""
    assert trained_alike(START, steps(last, last_moments=moments)) == alike
