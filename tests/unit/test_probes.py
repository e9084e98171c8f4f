"""States of later, and batches that no loader gives: what is changed, and what is not."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from meshproof.cases import Case
from meshproof.contract import Contract
from meshproof.observing.other_states import advanced, rekeyed, shows_rates, with_arrays_of, with_rates_times
from meshproof.observing.probes import not_finite, probes, thinned
from suites.test_later_steps_equal_those_of_one_device import compared, settled
from tests.implementations.odd import odd

W = {"w": jnp.ones((4, 4))}
STATE = {
    "w": W,
    "adam": optax.adam(1e-3).init(W),
    "typed": jax.random.key(1),
    "raw": jax.random.PRNGKey(1),
    "by_device": jnp.zeros(8, jnp.int32),
    "table": jnp.arange(4096),
    "scale": jnp.float32(2),
}


def changed(state):
    """The paths whose values are not those of `STATE`."""
    bits = lambda leaf: jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf  # noqa: E731
    flat = zip(jax.tree_util.tree_flatten_with_path(STATE)[0], jax.tree.leaves(state), strict=True)
    return {
        jax.tree_util.keystr(path, simple=True, separator="/")
        for (path, was), is_ in flat
        if not np.array_equal(bits(was), bits(is_))
    }


def test_counters_move_on():
    """Single ones, and one for each device; no key, no table, no number."""
    assert changed(advanced(STATE, 50)) == {"adam/0/count", "by_device"}
    assert advanced(STATE, 50)["adam"][0].count == 50


def test_other_keys():
    """Typed, raw, and the counters that may be folded into them; types and shapes stay."""
    state = rekeyed(STATE, 7919)
    assert changed(state) == {"typed", "raw", "adam/0/count", "by_device"}
    assert state["typed"].dtype == STATE["typed"].dtype and state["raw"].dtype == jnp.uint32


def test_arrays_of_before():
    """Counters, keys and single numbers stay as they are."""
    later = advanced(STATE | {"w": {"w": jnp.zeros((4, 4))}, "scale": jnp.float32(3)}, 1)
    assert changed(with_arrays_of(later, STATE)) == {"adam/0/count", "by_device", "scale"}


def test_shown_rates_alone_are_larger():
    """Betas and epsilons stay: a moment that grows is no training."""
    state = optax.inject_hyperparams(optax.adamw)(learning_rate=1e-3, weight_decay=1e-5).init(W)
    faster = with_rates_times(state, 100)
    assert shows_rates(state) and not shows_rates(STATE)
    assert faster.hyperparams["weight_decay"] == pytest.approx(1e-3)
    assert faster.hyperparams["learning_rate"] == pytest.approx(0.1)
    assert faster.hyperparams["b1"] == state.hyperparams["b1"]


BATCH = {"x": np.ones((16, 2), np.float32), "tokens": np.ones((16, 3), np.int32), "mask": np.ones(16, bool)}


def test_one_example_is_not_finite():
    """The last one, or the first, where it is a float. A mask that is a number stays."""
    last, first = not_finite(BATCH, -1), not_finite(BATCH, 0)
    assert np.isinf(last["x"]).sum(axis=1).tolist() == [0] * 15 + [2] and last["tokens"] is BATCH["tokens"]
    assert np.isinf(first["x"]).sum(axis=1).tolist() == [2] + [0] * 15
    masked = not_finite({"x": np.full(4, 0.5, np.float32), "weight": np.array([1, 1, 0, 1], np.float32)}, 0)
    assert np.isinf(masked["x"]).sum() == 1 and masked["weight"].tolist() == [1, 1, 0, 1]


def test_masks_are_made_uneven():
    """The first device keeps its rows, the next one half, the last one none; the dtype stays."""
    contract = Contract(batch={"*": jax.sharding.PartitionSpec("data")}, mask="mask")
    case = Case("x", odd(contract=contract), {"data": 4, "model": 2}, "cpu")
    mask = thinned(case, BATCH)["mask"]
    assert mask.dtype == bool and mask.reshape(4, 4).sum(axis=1).tolist() == [4, 2, 1, 0]


def test_what_cannot_be_probed_is_left_out():
    """A batch of tokens has no infinite example, a contract without mask or router no such batch."""
    tokens = {"tokens": BATCH["tokens"]}
    case = Case("x", odd(contract=Contract()), {"data": 8}, "cpu")
    names = [probe.what for probe in probes(case, {"w": np.ones(4, np.float32)}, [tokens] * 3, STATE)]
    scaled = ["parameters and inputs times 32", "parameters and inputs times 1/32"]
    assert names == ["24 steps", "50 steps later", "2,000 steps later", *scaled]


def test_a_temperature_stays_where_gradients_are_to_be_long_or_short():
    """It may be kept as its logarithm."""
    case = Case("x", odd(contract=Contract()), {"data": 8}, "cpu")
    given = {"w": np.ones(4, np.float32), "temperature": np.ones(1, np.float32)}
    scaled = [probe.parameters for probe in probes(case, given, [BATCH] * 3, STATE) if probe.by_length]
    assert [{path: leaf.max() for path, leaf in each.items()} for each in scaled] == [
        {"w": 32, "temperature": 1},
        {"w": 1 / 32, "temperature": 1},
    ]


def test_only_one_side_that_is_not_finite_fails():
    """Both sides, or a bound that overflowed, say nothing; one side alone stays."""
    one = {"w": np.array([1.0, np.inf, np.nan, 4.0])}
    run = {"w": np.array([1.0, np.inf, 3.0, 5.0])}
    bound = {"w": np.array([0.1, np.nan, np.nan, np.inf])}
    seen, is_, by = (leaves["w"] for leaves in settled(run, one, bound))
    assert seen.tolist() == [1, 0, 3, 0] and by[[0, 1, 3]].tolist() == [0.1, 0, 0]
    assert is_[[0, 1, 3]].tolist() == [1, 0, 0] and np.isnan(is_[2])


def test_a_mesh_that_forgets_nan_may_be_finite_and_no_more():
    """What one device has, it has too, and it has no NaN of its own."""
    one, bound = {"w": np.array([1.0, np.nan, 3.0])}, {"w": np.array([0.1, np.nan, 0.1])}
    seen, is_, _ = (leaves["w"] for leaves in settled({"w": np.array([1.0, 2.0, np.nan])}, one, bound, forgets=True))
    assert seen[:2].tolist() == is_[:2].tolist() == [1, 0] and np.isnan(seen[2])


def test_counts_alone_are_no_metrics_where_the_mesh_forgets():
    """What is not finite changes them there; a part that has nothing else is not judged, and does not fail."""

    def step(tokens):
        return SimpleNamespace(
            loss=1.0, metrics={"tokens": tokens}, auxiliary=None, optimizer_state=None, parameters={"w": np.ones(2)}
        )

    steps = step(np.array([8.0])), step(np.array([7.0])), step(np.array([0.0]))
    assert [part for part, _ in compared(steps, forgotten=True)] == ["loss", "parameters"]
    assert [part for part, _ in compared(steps, forgotten=False)] == ["loss", "metrics", "parameters"]
