"""A trainer whose every step is compiled is known before it is trained hundreds of times."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest

from meshproof.cases import Case
from meshproof.observing.members import canonical
from meshproof.observing.single_device_truth import OneDevice
from meshproof.observing.state import host
from tests.healthy.recipes import DataParallel
from tests.saboteurs.retraced import CountsInPython


class Plain(DataParallel):
    """Jitted once."""

    name = "plain"


class ShowsAnew(Plain):
    """What shows its parameters is jitted in every call."""

    def parameters(self, state):
        """A function of its own each time."""
        return jax.jit(lambda tree: jax.tree.map(jnp.copy, tree))(super().parameters(state))


@pytest.mark.parametrize(("kind", "member"), [(Plain, ""), (CountsInPython, "train_step"), (ShowsAnew, "parameters")])
def test_a_run_that_was_made_before_compiles_nothing(kind, member):
    """Unless a step has a static number of its own, or what shows a state is made anew: the member is named."""
    trainer = kind().single_device("float32")
    case = Case(trainer.name, SimpleNamespace(single_device=lambda _: trainer), {"data": 1}, "cpu")
    start = host(canonical(trainer.parameters(trainer.init(jax.random.key(0))), "parameters"))
    assert OneDevice(case, trainer, True, start, trainer.batches(3)).retraced == member
