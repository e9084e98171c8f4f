"""Steps in which what is not a number stays so, whatever XLA:CPU makes of it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from meshproof.observing.nan_propagation import propagating

WIDE = np.full((32, 144), np.nan, np.float32)


def summed(state, batch):
    """A state, and the sum of what is above 0 in each row of a batch."""
    return state, jnp.maximum(batch, 0).sum(1)


def test_a_sum_of_maxima_keeps_nan():
    """Of each shape that it is called with, in a step that donates its state."""
    step = propagating(jax.jit(summed, donate_argnums=0))
    for columns in (144, 64):
        _, sums = step(jnp.zeros(8), WIDE[:, :columns])
        assert np.isnan(sums).all()


def test_without_it_xla_drops_nan():
    """Should this fail, XLA:CPU keeps NaN: `propagating` may go."""
    assert (jax.jit(summed)(0, WIDE)[1] == 0).all()


class Refuses:
    """A step that looks at its result on the host."""

    def __init__(self):
        self.jitted = jax.jit(summed)
        self.lower = self.jitted.lower

    def __call__(self, state, batch):
        """Raises ``FloatingPointError`` always."""
        raise FloatingPointError("the loss is not finite")


def test_a_step_that_does_more_than_its_program_is_called_as_it_is():
    """What a wrapper refuses stays refused, and a function of Python is called."""
    with pytest.raises(FloatingPointError, match="not finite"):
        propagating(Refuses())(jnp.zeros(8), WIDE)
    state, sums = propagating(summed)({"name": "a word"}, np.ones((2, 3), np.float32))
    assert (state, sums.tolist()) == ({"name": "a word"}, [3, 3])


def test_a_step_of_nnx_keeps_nan():
    """As one of JAX does."""
    assert np.isnan(propagating(nnx.jit(summed))(jnp.zeros(8), WIDE)[1]).all()


def test_a_state_that_is_not_of_arrays_alone_is_left_to_the_step():
    """As where part of it is static."""
    step = jax.jit(lambda factor, batch: summed(float(factor) * batch, batch), static_argnums=0)
    assert propagating(step)("2", np.ones((2, 3), np.float32))[0].tolist() == [[2, 2, 2]] * 2
