"""What `meshproof adopt` takes from a trainer, and what it guesses beside that."""

from runpy import run_path

import jax.numpy as jnp
import pytest

from meshproof.adopting.members import adapt
from meshproof.cases import quiet_form
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


class Noisy(PlainLoop):
    """Adds noise to its inputs, unless it is quiet."""

    draws = True
    variant = "noisy"

    def __init__(self, devices=8, quiet=False):
        super().__init__()
        self.devices, self.quiet = devices, quiet

    def without_draws(self):
        """The same without it."""
        return Noisy(self.devices, quiet=True)


def test_a_trainer_without_its_draws_is_adopted_too(tmp_path):
    """A case of its own, also as its own judge; its name tells them apart."""
    adapter, path = adapt(f"{__name__}:Noisy"), tmp_path / "adopted.py"
    path.write_text(f"{adapter.header()}\nCONTRACT = None\n{adapter.source()}")
    [loud] = run_path(str(path))["strategies"]()
    [quiet] = quiet_form(loud)
    assert (quiet.draws, quiet.variant, quiet.trainer.quiet) == (False, "noisy+without_draws", True)
    assert (loud.draws, loud.variant, loud.trainer.quiet) == (True, "noisy", False)
    alone = quiet.single_device("float64")
    assert (alone.trainer.quiet, alone.trainer.devices) == (True, 1)
    assert (quiet.name, quiet.framework) == (loud.name, loud.framework)
