"""A trainer whose ``load`` makes an optimizer is traced once, and trains from what it was handed."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from flax.training.train_state import TrainState

from meshproof.observing.alike import Alike

STARTS = [{"w": np.full(4, value, np.float32)} for value in (1, 2, 3)]


class Tied(nnx.Module):
    """What it embeds by it also reads out by."""

    def __init__(self, parameters):
        self.embed = nnx.Param(jnp.asarray(parameters["w"]))
        self.read_out = self.embed


def with_train_state():
    """A trainer, and how often its step was traced."""
    traced = []

    @jax.jit
    def train_step(state, batch):
        traced.append(state)
        return state.apply_gradients(grads={"w": batch})

    def load(parameters):
        held = jax.tree.map(jnp.asarray, parameters)
        return TrainState.create(apply_fn=lambda held: held, params=held, tx=optax.adam(0.5))

    return SimpleNamespace(load=load, train_step=train_step, held=lambda state: state.params["w"]), traced


def with_modules():
    """The same of Flax's modules."""
    traced = []

    @nnx.jit
    def train_step(state, batch):
        traced.append(state)
        model, optimizer = state
        optimizer.update(model, nnx.State({"w": nnx.Param(batch)}))
        return state

    def load(parameters):
        model = nnx.Dict(w=nnx.Param(jnp.asarray(parameters["w"])))
        return model, nnx.Optimizer(model, optax.adam(0.5), wrt=nnx.Param)

    return SimpleNamespace(load=load, train_step=train_step, held=lambda state: state[0]["w"][...]), traced


@pytest.mark.parametrize("new", [with_train_state, with_modules])
def test_it_is_traced_once(new):
    """Where it would be for every state; and each state trains from its own parameters."""
    ends = []
    for how, times in ((lambda trainer: trainer, len(STARTS)), (Alike, 1)):
        trainer, traced = new()
        trainer = how(trainer)
        ends.append([trainer.held(trainer.train_step(trainer.load(start), jnp.ones(4))) for start in STARTS])
        assert len(traced) == times
    assert np.array_equal(*ends) and len(np.unique(ends)) == len(STARTS)


def test_another_shape_has_its_own():
    """What is static may say how large its arrays are."""
    trainer = Alike(with_train_state()[0])
    one, other, again = map(trainer.load, (STARTS[0], {"w": np.ones(7, np.float32)}, STARTS[1]))
    assert one.tx is again.tx and one.tx is not other.tx


def test_a_parameter_in_two_places_is_in_both():
    """Put together anew, they would be two, and train apart."""
    trainer = Alike(SimpleNamespace(load=Tied))
    for model in map(trainer.load, STARTS):
        assert model.embed is model.read_out


def test_a_trainer_that_keeps_its_state_keeps_it():
    """What is one for every start is not put together anew: the trainer may look at its own."""
    own = nnx.Dict(w=nnx.Param(jnp.ones(4)))
    trainer = Alike(SimpleNamespace(load=lambda start: nnx.update(own, start) or own))
    assert all(trainer.load(start) is own for start in STARTS)


def test_what_is_static_need_not_compare():
    """As a table that a step never sees."""

    def load(start):
        return TrainState.create(apply_fn=np.ones(3), params=start, tx=optax.sgd(0.1))

    trainer = Alike(SimpleNamespace(load=load))
    assert [float(trainer.load(start).params["w"][0]) for start in STARTS] == [1, 2, 3]


def test_what_holds_no_numbers_alone_is_left_as_it_is():
    """A state that JAX cannot look into may be anything."""
    made = []
    trainer = Alike(SimpleNamespace(load=lambda _: made.append(object()) or {"w": jnp.ones(2), "opaque": made[-1]}))
    assert [trainer.load(start)["opaque"] for start in STARTS] == made


class Plateau:
    """Remembers the losses of its run."""

    def __init__(self):
        self.seen = []


def reads(start, history):
    """An update that closes over its start value's largest element."""
    largest = float(start["w"].max())
    return optax.stateless(lambda updates, _: jax.tree.map(lambda update: update * largest + len(history), updates))


def counting(start):
    """An update that counts how often it was traced."""
    calls = 0

    def update(updates, _):
        nonlocal calls
        calls += 1
        return updates

    return optax.stateless(update)


@pytest.mark.parametrize(
    "made",
    [
        lambda _: Plateau(),
        lambda _: [],
        lambda _: {},
        lambda start: reads(start, ()),
        counting,
        lambda _: Plateau().__init__,
    ],
    ids=["an object", "a list", "a dict", "a number of the start", "a count", "a method of an object"],
)
def test_what_a_run_may_change_or_a_start_decides_is_its_own(made):
    """A scheduler that has seen another run's losses, or a length that another start has."""

    def load(start):
        return TrainState.create(apply_fn=made(start), params=start, tx=optax.sgd(0.1))

    trainer = Alike(SimpleNamespace(load=load))
    states = [trainer.load(start) for start in STARTS]
    assert len({id(state.apply_fn) for state in states}) == len(STARTS)


@pytest.mark.parametrize(
    "made",
    [
        lambda: optax.chain(
            optax.clip_by_global_norm(1.0), optax.adamw(optax.warmup_cosine_decay_schedule(0, 1, 5, 9))
        ),
        lambda: optax.adamw(0.1, mask=lambda tree: jax.tree.map(lambda leaf: leaf.ndim > 1, tree)),
        lambda: optax.lion(0.1, b1=0.8),
    ],
)
def test_an_optimizer_that_is_made_anew_is_one(made):
    """Functions of functions, by what they close over."""
    trainer = Alike(SimpleNamespace(load=lambda start: TrainState.create(apply_fn=len, params=start, tx=made())))
    assert len({id(trainer.load(start).tx.update) for start in STARTS}) == 1


def test_a_parameter_in_two_places_is_in_both_before_it_is_placed():
    """Held as NumPy's arrays."""
    trainer = Alike(
        SimpleNamespace(load=lambda start: {"embed": start["w"], "read_out": start["w"], "f": optax.sgd(0.1)})
    )
    states = [trainer.load(start) for start in STARTS]
    assert all(state["embed"] is state["read_out"] for state in states)
