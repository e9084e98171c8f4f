"""Keys are followed through loops and devices, and one that comes again in a later step is found."""

from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from meshproof.observing.key_streams import (
    Draw,
    again,
    alike_in_rows,
    as_on_one_device,
    drawn,
    drawn_twice,
    left_behind,
    may_mask,
    moves_on,
)
from meshproof.observing.reused_keys import reused_key
from meshproof.observing.seen import NotSupported
from reference_impl.compat import varying

DEVICES = 4


def keys(*steps):
    """A step for each dict of a place and a device to the numbers of keys."""
    return [Counter(Draw(*at, bytes([key]), (2,)) for at, of in step.items() for key in of) for step in steps]


@pytest.mark.parametrize(
    ("steps", "found"),
    [
        (keys({(0, 0): [1], (0, 1): [2]}, {(0, 0): [3], (0, 1): [4]}), None),
        (keys({(0, 0): [1], (0, 1): [2]}, {(0, 0): [2], (0, 1): [3]}), (0, 1, 1, 0)),
        (keys({(0, -1): [1, 2]}, {(0, -1): [2, 3]}), (0, 1, -1, -1)),
        (keys({(0, 0): [1], (1, 0): [5]}, {(0, 0): [1], (1, 0): [6]}), None),
        (keys({(0, 0): [1]}, {(0, 0): [2]}, {(0, 0): [1]}), (0, 2, 0, 0)),
    ],
    ids=["all differ", "along devices", "along layers", "a constant draw", "two steps later"],
)
def test_a_key_that_comes_again_is_found(steps, found):
    """In the step and on the device that has it again; what a place always draws is constant."""
    seen = again(steps)
    assert (seen and (*seen[:2], seen[2].device, seen[3].device)) == found


@pytest.mark.parametrize(
    ("steps", "device"),
    [
        (keys({(0, 0): [1], (0, 1): [2]}, {(0, 0): [3], (0, 1): [4]}), None),
        (keys({(0, 0): [1], (0, 1): [2]}, {(0, 0): [3], (0, 1): [2]}), 1),
        (keys({(0, 0): [1], (0, 1): [2]}, {(0, 0): [1], (0, 1): [2]}), None),
        (keys({(0, 0): [1], (1, 0): [5]}, {(0, 0): [1], (1, 0): [6]}), None),
    ],
    ids=["all move on", "one stays", "a constant draw", "a constant draw beside another"],
)
def test_a_device_that_is_left_behind_is_found(steps, device):
    """Where others draw by new keys at the same place."""
    behind = left_behind(steps)
    assert (behind and behind.device) == device


def test_one_of_two_draws_may_not_be_alike_on_all_devices():
    """Of as many numbers as a device has rows; where all draws are alike, or it is one for all rows, others judge."""
    own = {(0, 0): [1], (0, 1): [2]}
    [partly], [every], [none] = (keys(own | {(1, 0): [5], (1, 1): of}) for of in ([5], [6], []))
    assert alike_in_rows(partly, 2, set()).place == 1
    assert alike_in_rows(partly, 3, set()) is alike_in_rows(partly, 2, {(2,)}) is None
    assert alike_in_rows(every, 2, set()) is alike_in_rows(none, 2, set()) is None
    assert alike_in_rows(*keys({(0, 0): [1], (0, 1): [1]}), 2, set()) is None


def test_a_draw_may_be_for_each_row():
    """One number for all of them is not, nor is noise for a weight; with a key for each row single numbers are."""
    one, each = ({Draw(0, -1, bytes([key]), ()): 1 for key in range(count)} for count in (3, 4))
    noise, wide = ({Draw(0, -1, b"", shape): 1} for shape in ((4, 2), (16, 2)))
    assert not may_mask(one, 4, set()) and may_mask(each, 4, set())
    assert not may_mask(noise, 8, {(4, 2)}) and may_mask(noise, 8, set())
    assert may_mask(noise, 4, {(4, 2)}) and may_mask(noise | wide, 8, {(4, 2)})


def test_steps_are_told_apart_by_their_keys():
    """As are a mesh and one device."""
    one, other = keys({(0, 0): [1]}, {(3, -1): [1]})
    assert as_on_one_device(one, other)
    assert not moves_on([one, other])
    assert moves_on(keys({(0, 0): [1]}, {(0, 0): [2]}))


def test_a_key_is_drawn_by_twice_on_one_device():
    """At one place or at two; another device may have the same key."""
    once, again, elsewhere = keys({(0, 0): [1, 2], (0, 1): [1]}, {(0, 0): [1, 1]}, {(0, 0): [1], (1, 0): [1]})
    assert [drawn_twice(step) for step in (once, again, elsewhere)] == [False, True, True]
    thrice = Counter(dict.fromkeys(again, 3))
    assert [drawn_twice(step, computed=2) for step in (again, elsewhere, thrice)] == [False, False, True]


class Masks:
    """A step that draws a mask on each device, in a loop of two, by keys of a kind."""

    def __init__(self, make, kept=None):
        self.make, self.kept = make, kept
        self.train_step = jax.jit(self.step)
        self.mesh = Mesh(np.array(jax.devices()[:DEVICES]), ("data",))

    def step(self, state, batch):
        """The key is folded with the device and with the number of the turn."""
        count, key = state["count"], state.get("key")
        key = jax.random.fold_in(self.kept if key is None and self.kept is not None else self.make(key), count)

        def local(x):
            own = jax.random.fold_in(key, jax.lax.axis_index("data"))

            def turn(x, number):
                return x * jax.random.bernoulli(jax.random.fold_in(own, number), 0.5, x.shape), None

            return jax.lax.pmean(jax.lax.scan(turn, x, jnp.arange(2))[0].sum(), "data")

        value = jax.shard_map(local, mesh=self.mesh, in_specs=P("data"), out_specs=P())(batch)
        return state | {"count": count + 1}, {"loss": value}


@pytest.mark.parametrize(
    ("make", "key"),
    [
        (lambda key: jax.random.key(3), None),
        (lambda key: jax.random.PRNGKey(3), None),
        (lambda key: key, jax.random.key),
        (lambda key: key, jax.random.PRNGKey),
    ],
    ids=["typed, in the step", "older, in the step", "typed, in the state", "older, in the state"],
)
def test_every_draw_of_every_device_is_told(make, key):
    """In each step, by the key that it has; the same numbers are drawn as ever."""
    trainer, batch = Masks(make), jnp.ones((8, 3))
    state = {"count": jnp.int32(0)} | ({"key": key(3)} if key else {})
    usual = trainer.train_step(state, batch)[1]["loss"]
    first, second = drawn(trainer, state, [batch, batch])
    assert {draw.device for draw in first} == set(range(DEVICES))
    assert len({draw.key for draw in [*first, *second]}) == 2 * 2 * DEVICES
    assert trainer.train_step(state, batch)[1]["loss"] == usual
    own = jax.random.fold_in(jax.random.fold_in(jax.random.fold_in(jax.random.key(3), 0), 1), 1)
    assert np.asarray(jax.random.key_data(own)).tobytes() in {draw.key for draw in first if draw.device == 1}


def test_what_cannot_be_followed_is_said():
    """A key that the step closes over, and a step that asks what type its key has."""
    batch, state = jnp.ones((8, 3)), {"count": jnp.int32(0)}
    closed = drawn(Masks(None, jax.random.key(3)), state, [batch])
    assert isinstance(closed, NotSupported)
    assert closed.reason.startswith(
        "no draw of its step was seen: one that only splits keys makes none, and a draw by a"
    )
    asks = drawn(Masks(lambda key: jax.random.wrap_key_data(key)), state | {"key": jax.random.PRNGKey(0)}, [batch])
    assert isinstance(asks, NotSupported)
    assert asks.reason.startswith("its step takes no keys of another type: ")


@pytest.mark.parametrize(
    ("own", "is_reused"),
    [
        (lambda key, layer: jax.random.fold_in(jax.random.fold_in(key, jax.lax.axis_index("data")), layer), False),
        (lambda key, layer: key, True),
        (lambda key, layer: varying(key, "data"), True),
    ],
    ids=["folded", "shared", "cast"],
)
def test_a_key_that_devices_share_is_used_once_for_each_fold(own, is_reused):
    """A helper folds in the device, and then the layer, of a key that all devices have; or it draws by that key, as it
    is or cast: JAX's check is told that a cast is no use, and still sees what is drawn by it twice."""

    def dropped(key, layer, x):
        return x * jax.random.bernoulli(own(key, layer), 0.5, x.shape)

    def local(key, x):
        return dropped(key, 1, dropped(key, 0, x))

    mesh = Mesh(np.array(jax.devices()[:DEVICES]), ("data",))
    step = jax.shard_map(local, mesh=mesh, in_specs=(P(), P("data")), out_specs=P("data"))
    said = reused_key(step, jax.random.key(0), jnp.ones(8))
    assert bool(said) == is_reused


@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("wrapped", [lambda block: block, jax.checkpoint], ids=["kept", "rematerialised"])
def test_keys_of_layers_of_examples_are_used_once(twice, wrapped):
    """`vmap` over examples of a scan over layers transposes their keys (midGPT): a draw by these is their first."""

    def block(x, key):
        first, second = jax.random.split(key)
        kept = x * jax.random.bernoulli(first, 0.5, x.shape)
        return kept * jax.random.bernoulli(first if twice else second, 0.5, x.shape), None

    def example(w, x, key):
        return jax.lax.scan(wrapped(block), w * x, jax.random.split(key, 3))[0].sum()

    def loss(w, x, key):
        return jax.vmap(example, (None, 0, 0))(w, x, jax.random.split(key, len(x))).sum()

    said = reused_key(lambda key, x: jax.grad(loss)(1.0, x, key), jax.random.key(0), jnp.ones((2, 4)))
    assert bool(said) == twice
