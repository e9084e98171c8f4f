"""Programs of float32 in float64: every kind of equation, and the trainers that are made of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType, Mesh
from jax.sharding import PartitionSpec as P

from meshproof.observing.float64_trainers import Widened
from meshproof.observing.widened_programs import NarrowError, in_float64

ONES = np.linspace(0.1, 1.7, 8, dtype=np.float32)
TENTH = np.float64(np.float32(0.1))


def doubled(function, *given):
    """What it makes of these, traced in float32 and computed in float64."""
    program = jax.make_jaxpr(function)(*given)
    with jax.enable_x64(True):
        wide = [np.asarray(each, np.float64) if each.dtype == np.float32 else each for each in map(np.asarray, given)]
        return [np.asarray(each) for each in jax.jit(lambda *taken: in_float64(program, taken))(*wide)]


@jax.custom_vjp
def with_own_gradient(x):
    """A sine, whose gradient is twice what it is."""
    return jnp.sin(x)


with_own_gradient.defvjp(lambda x: (jnp.sin(x), x), lambda x, g: (2 * g * jnp.cos(x),))


def over_one_device(x):
    """A mean over an axis of one device, of shards that vary, and where each lies."""
    mesh = Mesh(np.array(jax.devices()[:1]), ("data",))

    def local(x):
        whole = lax.all_gather(x * lax.pcast(jnp.float32(0.1), "data", to="varying"), "data", tiled=True)
        return lax.pmean(whole.sum() + lax.axis_index("data"), "data")

    return jax.shard_map(local, mesh=mesh, in_specs=P("data"), out_specs=P())(x)


def to_the_third(x):
    """By a loop that counts."""
    return lax.while_loop(lambda carry: carry[0] < 3, lambda carry: (carry[0] + 1, carry[1] * x[7]), (0, 1.0))[1]


WIDE = ONES.astype(np.float64)
COMPUTED = {
    "constants": (lambda x: x * 0.1 + jnp.full(8, 0.1, jnp.float32), WIDE * TENTH + TENTH),
    "a cast": (lambda x: x.astype(jnp.float32) * jnp.float32(3), WIDE * 3),
    "whole numbers": (lambda x: x * jnp.arange(8), WIDE * np.arange(8)),
    "jit": (lambda x: jax.jit(jnp.cos)(x), np.cos(WIDE)),
    "scan": (lambda x: lax.scan(lambda s, each: (s + each, s * each), 0.0, x)[0], WIDE.sum()),
    "scan's constants": (lambda x: lax.scan(lambda s, each: (s, s * each * x[0]), 2.0, x)[1], 2 * WIDE * WIDE[0]),
    "while": (
        lambda x: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * x[7]), (0, 1.0))[1],
        WIDE[7] ** 3,
    ),
    "cond": (lambda x: lax.cond(x[0] > 0, lambda y: y / 3, lambda y: y, x), WIDE / 3),
    "remat": (jax.grad(lambda x: jax.checkpoint(jnp.sin)(x).sum()), np.cos(WIDE)),
    "custom_jvp": (lambda x: jax.nn.relu(x - 1), np.maximum(WIDE - 1, 0)),
    "custom_vjp": (jax.grad(lambda x: with_own_gradient(x).sum()), 2 * np.cos(WIDE)),
    "scatter": (lambda x: jnp.zeros(3).at[jnp.array([0, 1, 1])].add(x[:3]), [WIDE[0], WIDE[1] + WIDE[2], 0]),
    "reduced precision of its own": (lambda x: lax.reduce_precision(x, 8, 23) / 3, WIDE / 3),
    "sorted, by a program of two": (lambda x: jnp.sort(-x), np.sort(-WIDE)),
    "products": (lambda x: jnp.dot(x, x, preferred_element_type=jnp.float32), WIDE @ WIDE),
    "convolution": (lambda x: jnp.convolve(x, x), np.convolve(WIDE, WIDE)),
    "complex numbers": (lambda x: jnp.abs(jnp.fft.fft(x)[1]), np.abs(np.fft.fft(WIDE)[1])),
    "shard_map": (over_one_device, (WIDE * TENTH).sum()),
}


@pytest.mark.parametrize("what", COMPUTED)
def test_each_kind_of_equation_is_computed_in_double(what):
    """By NumPy in float64; float32 would be off by 1e-8 or more."""
    function, expected = COMPUTED[what]
    [seen] = doubled(function, ONES)
    assert seen.dtype == np.float64
    np.testing.assert_allclose(seen, expected, rtol=1e-14)


def test_random_numbers_are_those_of_float32():
    """The same bits, to the last digit that float32 has; no other draws, as a dtype of float64 would make them."""
    key = jax.random.key_data(jax.random.key(3))

    def draw(words):
        key = jax.random.wrap_key_data(words)
        every = [jax.random.uniform(key, (64,)), jax.random.bernoulli(key, 0.3, (64,)), jax.random.normal(key, (64,))]
        rejected = [jax.random.gamma(key, jnp.float32(1.3), (64,)), jax.random.poisson(key, jnp.float32(2), (64,))]
        return [*every, *rejected]

    uniform, kept, normal, gamma, poisson = map(np.asarray, draw(key))
    drawn = doubled(draw, key)
    assert drawn[0].dtype == drawn[2].dtype == drawn[3].dtype == np.float64
    assert (drawn[0] == uniform).all()
    assert (drawn[1] == kept).all()
    np.testing.assert_allclose(drawn[2], normal, rtol=1e-5)
    np.testing.assert_allclose(drawn[3], gamma, rtol=1e-5)
    assert (drawn[4] == poisson).all()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float8_e4m3fn"])
def test_what_is_narrower_than_float32_is_not_widened(dtype):
    """Its rounding belongs to the program."""
    with pytest.raises(NarrowError, match=f"a step computes in {dtype}"):
        doubled(lambda x: x.astype(dtype).astype(jnp.float32), ONES)


class Counts:
    """A trainer that writes float32, draws, has a number of Python's and a function in its state, and counts."""

    def load(self, parameters):
        """A state."""
        weights = {"w": jnp.asarray(parameters["w"], jnp.float32)}
        return {"parameters": weights, "count": jnp.int32(0), "key": jax.random.key(1), "rate": 0.5, "apply": jnp.sin}

    def train_step(self, state, batch):
        """Adds what is drawn."""
        key, used = jax.random.split(state["key"])
        kept = jax.random.bernoulli(used, 0.5, batch["x"].shape)
        loss = jnp.mean(state["apply"](state["parameters"]["w"] * batch["x"]) * kept, dtype=jnp.float32)
        weights = {"w": state["parameters"]["w"] - state["rate"] * loss}
        return state | {"parameters": weights, "count": state["count"] + 1, "key": key}, {"loss": loss}

    def parameters(self, state):
        """By name."""
        return state["parameters"]


class SetsItsMesh(Counts):
    """Each step sets its mesh, and constrains by it (picodo)."""

    def train_step(self, state, batch):
        """The same."""
        with jax.set_mesh(jax.make_mesh((1,), ("data",), axis_types=(AxisType.Auto,), devices=jax.devices()[:1])):
            x = jax.jit(lambda x: lax.with_sharding_constraint(x, P("data")))(batch["x"])
            return super().train_step(state, {"x": x})


@pytest.mark.parametrize("kind", [Counts, SetsItsMesh])
def test_a_trainer_that_writes_float32_trains_in_double(kind):
    """By the same draws, step after step, and near its own run."""
    trainer, batch = kind(), {"x": ONES}
    state = trainer.load({"w": np.float32(0.3)})
    with jax.enable_x64(True):
        double = Widened(trainer)
        wide = double.load({"w": np.float64(np.float32(0.3))})
        for _ in range(3):
            with jax.enable_x64(False):
                state, metrics = trainer.train_step(state, batch)
            wide, seen = double.train_step(wide, batch)
            assert seen["loss"].dtype == double.parameters(wide)["w"].dtype == np.float64
            assert float(seen["loss"]) == pytest.approx(float(metrics["loss"]), rel=1e-6)
            assert float(seen["loss"]) != float(metrics["loss"])
        assert int(wide["count"]) == 3
        assert (jax.random.key_data(wide["key"]) == jax.random.key_data(state["key"])).all()
    assert len(double.programs) == 1
