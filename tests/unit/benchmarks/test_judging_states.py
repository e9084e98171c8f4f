"""The time of an ``init`` is of a state that is right: each fault of one, planted."""

from itertools import count
from types import SimpleNamespace

import jax.numpy as jnp
import pytest

from benchmarks.initialisation import Initialisation
from benchmarks.window import WindowError


def made(init):
    """Two states of a trainer, the second one as it would be timed."""
    making = Initialisation(SimpleNamespace(id="toy", strategy=SimpleNamespace(init=init)))
    making.run()
    return making


def test_right_init_is_timed():
    """The same finite state of the same key passes."""
    made(lambda key: {"w": jnp.ones(3)}).check()


def test_init_that_is_not_finite_is_faulty():
    """A leaf with a value that is not finite is named."""
    with pytest.raises(WindowError, match=r"toy: init made what is not finite: .*w"):
        made(lambda key: {"w": jnp.array([1.0, jnp.nan])}).check()


def test_init_that_changes_is_faulty():
    """Another state of the same key is refused."""
    calls = count()
    with pytest.raises(WindowError, match="toy: init made another state of the same key"):
        made(lambda key: {"w": jnp.full(3, next(calls))}).check()


def test_init_that_compiles_while_timed_is_faulty():
    """What was compiled while it was timed is named."""
    making = made(lambda key: {"w": jnp.ones(3)})
    making.events = ["backend_compile"]
    with pytest.raises(WindowError, match="init compiled while it was timed: backend_compile"):
        making.check()
