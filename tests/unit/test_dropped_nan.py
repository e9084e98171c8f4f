"""One device that forgets an example which is not finite, as XLA:CPU may, is no truth of it."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest

from meshproof.cases import Case
from meshproof.observing.members import canonical
from meshproof.observing.single_device_truth import OneDevice
from meshproof.observing.state import host
from tests.healthy.recipes import DataParallel


class Forgets(DataParallel):
    """As a maximum does that drops what is no number."""

    name = "forgets"

    def mean_loss(self, w, batch):
        """Of what is left."""
        return super().mean_loss(w, jax.tree.map(jnp.nan_to_num, batch))


class ForgetsWrapped(Forgets):
    """The program cannot be had: the step is a method of its own."""

    def train_step(self, state, batch):
        """Jitted inside."""
        return self.jitted(state, batch)

    @property
    def jitted(self):
        """Once."""
        self.kept = getattr(self, "kept", None) or jax.jit(self.update)
        return self.kept


class RemembersWrapped(ForgetsWrapped):
    """The same without a fault."""

    def mean_loss(self, w, batch):
        """Of all."""
        return DataParallel.mean_loss(self, w, batch)


@pytest.mark.parametrize(("kind", "judged"), [(Forgets, True), (ForgetsWrapped, False), (RemembersWrapped, True)])
def test_a_truth_that_may_have_dropped_an_example_says_nothing_of_it(kind, judged):
    """Where its program can be had, it is compiled so that nothing is dropped: then it is the trainer's own doing."""
    trainer = kind().single_device("float32")
    case = Case(trainer.name, SimpleNamespace(single_device=lambda _: trainer), {"data": 1}, "cpu")
    start = host(canonical(trainer.parameters(trainer.init(jax.random.key(0))), "parameters"))
    probed = dict(OneDevice(case, trainer, False, start, trainer.batches(3)).probed())
    assert ("a last example that is not finite" in probed) == judged and "50 steps later" in probed
