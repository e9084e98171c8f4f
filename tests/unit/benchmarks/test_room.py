"""What is timed leaves a step its room: no second state lives beside the one that a device is known to hold."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import timing
from benchmarks.compilation import Compilation
from benchmarks.initialisation import Initialisation
from benchmarks.timing import time_windows
from benchmarks.window import Window
from meshproof.cases import Case

SHAPE = (5, 7)
"""Of the state, and of nothing else."""


def living():
    """The states that there are."""
    return [array for array in jax.live_arrays() if array.shape == SHAPE and not array.is_deleted()]


class Jealous:
    """A trainer that makes no state where there is one, nor while a trace is taken."""

    name, framework, model = "jealous", "jax", "number"
    traced = False

    def init(self, key):
        """The state."""
        assert not living() and not self.traced
        return jax.block_until_ready(jnp.ones(SHAPE))

    def batches(self, count):
        """The batches."""
        return [{"x": np.full(3, i)} for i in range(count)]

    @property
    def train_step(self):
        """One step."""
        return step


class Judged(Window):
    """Windows whose judge needs room too: it may train on a single device."""

    def judge_losses(self, given):
        """As ever, where no state is left."""
        assert not living()
        super().judge_losses(given)


def update(state, batch):
    """Towards zero."""
    return state * 0.9, {"loss": state.mean() + batch["x"].mean()}


step = jax.jit(update, donate_argnums=0)


@pytest.fixture
def jealous():
    """A case of it."""
    return Case("jealous-jax-number@data=1", Jealous(), {"data": 1}, "cpu")


def in_rounds(run, teardown, setup=lambda: None, **_):
    """``benchmark.pedantic``, without the time."""
    for _ in range(3):
        arguments, _ = setup() or ((), {})
        run(*arguments)
        teardown(*arguments)


TIMED = SimpleNamespace(
    pedantic=in_rounds, disabled=False, stats=SimpleNamespace(stats=SimpleNamespace(median=1.0)), extra_info={}
)


def test_compilations_keep_one_state(jealous):
    """A compilation needs the shapes of a state: none is held while windows warm up."""
    compilation = Compilation(Window(jealous), "toy", check=lambda *_: None)
    compilation.time(TIMED)


def test_windows_keep_one_state(monkeypatch, jealous):
    """Each window drops what the last one left before it makes its own; the trace is of a window, not of its start."""
    traces = []

    def trace(run, kept):
        jealous.strategy.traced = True
        traces.append(run())
        jealous.strategy.traced = False

    monkeypatch.setattr(timing, "activity", trace)
    time_windows(TIMED, Judged(jealous), "toy")
    assert len(traces) == 1


def test_init_keeps_one_state(jealous):
    """The state that was made and checked is gone before the next is made."""
    making = Initialisation(jealous)
    making.check()
    in_rounds(making.run, making.check)
