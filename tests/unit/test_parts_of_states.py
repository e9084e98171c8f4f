"""A part of a state has other values where the state holds its arrays itself, and only there."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from meshproof.observing.other_states import NotHeldError, with_rows, with_values_of

ROWS = np.arange(16)[::-1]


@pytest.fixture
def state():
    """Rows over the devices, a mean on all of them, a key for each of 16 rows, and parameters of as many rows."""
    mesh = jax.make_mesh((8,), ("data",))
    split, whole = NamedSharding(mesh, P("data")), NamedSharding(mesh, P())
    rows, keys = jnp.arange(16.0), jax.random.split(jax.random.PRNGKey(0), 16)
    return jax.device_put(
        {"rows": rows, "mean": rows, "keys": keys, "w": rows}, {"rows": split, "mean": whole, "keys": split, "w": split}
    )


def test_rows_go_with_their_examples(state):
    """Those that devices share out among them; keys, what is whole and what is no part of it stay."""
    part = {name: state[name] for name in ("rows", "mean", "keys")}
    moved = with_rows(state, part, ROWS)
    assert [name for name in state if not np.array_equal(moved[name], state[name])] == ["rows"]
    assert (
        np.array_equal(moved["rows"], np.asarray(state["rows"])[ROWS])
        and moved["rows"].sharding == state["rows"].sharding
    )
    assert with_rows(state, part, ROWS[:8])["rows"] is state["rows"]


def test_values_are_put_in_their_place(state):
    """Of another shape they are not; and of an array that is made of the state's they cannot."""
    values = {"mean": np.ones(16, np.float32), "rows": np.ones(8, np.float32)}
    put = with_values_of(state, {name: state[name] for name in values}, values)
    assert np.array_equal(put["mean"], values["mean"]) and put["mean"].sharding == state["mean"].sharding
    assert put["rows"] is state["rows"]
    with pytest.raises(NotHeldError, match="auxiliary returned 'mean', which is no array of the state itself"):
        with_values_of(state, {"mean": state["mean"] + 1}, values)
