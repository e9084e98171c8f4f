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
