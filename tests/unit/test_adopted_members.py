"""What `meshproof adopt` takes from a trainer, and what it guesses beside that."""

import jax.numpy as jnp
import pytest

from meshproof.adopting.members import adapt
from tests.implementations.unadopted import PlainLoop


class Slow(PlainLoop):
    """Keeps a slower copy of each array, by a name that tells nobody what it is."""

    def __init__(self):
        super().__init__()
        self.state = {"params": {"w": jnp.ones(3), "b": jnp.ones(2)}, "slow": {"w": jnp.zeros(3), "b": jnp.zeros(2)}}


class Telling(Slow):
    """Says that these are its optimizer's."""

    def optimizer_state(self, state):
        """One tree."""
        return {"slow": state["slow"]}


@pytest.mark.parametrize(("trainer", "guessed"), [("Slow", True), ("Telling", False)])
def test_what_a_trainer_tells_is_not_guessed_to_be_something_else(trainer, guessed):
    """One array is in one part: whoever says which is believed."""
    members = adapt(f"{__name__}:{trainer}").members
    assert ("slow" in members.get("auxiliary", "")) == guessed
    assert members["parameters"] and ("optimizer_state" in members) == (not guessed)


class InDicts(PlainLoop):
    """Shows its gradients as it keeps its parameters."""

    def gradients(self, state, batch):
        """As many ones."""
        return {"w": jnp.ones(3)}


class InAList(InDicts):
    """In a tree of its own, which JAX takes."""

    def gradients(self, state, batch):
        """Of layers."""
        return [jnp.ones(3)]


class Untraced(InDicts):
    """Decides in Python what to return."""

    def gradients(self, state, batch):
        """By a value."""
        return {"w": jnp.ones(3 if batch["x"].sum() > 0 else 2)}


@pytest.mark.parametrize(("trainer", "said"), [("InDicts", ""), ("Untraced", ""), ("InAList", "subtree(")])
def test_gradients_are_shown_as_nested_dicts(trainer, said):
    """Of any pytree, by the paths that its parameters have; nested dicts are handed on, jitted as they are."""
    source = adapt(f"{__name__}:{trainer}").members["gradients"]
    assert said in source and bool(source) == bool(said)
