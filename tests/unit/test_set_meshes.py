"""A trainer that sets its mesh for all that comes after, as JAX's own cookbook does, and its run on one device."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from meshproof.cases import Case
from meshproof.observing.alone import on_one_device
from meshproof.observing.members import canonical
from meshproof.observing.single_device_truth import OneDevice
from meshproof.observing.state import host
from tests.healthy.recipes import DataParallel


class SetsItsMesh(DataParallel):
    """While it is made; its loss names axes alone."""

    name = "sets_its_mesh"

    def __init__(self, axes=None, seed=0):
        super().__init__(axes, seed)
        jax.set_mesh(self.mesh)

    def mean_loss(self, w, batch):
        """Of rows that are split by the mesh in force."""
        return super().mean_loss(w, jax.tree.map(lambda rows: jax.lax.with_sharding_constraint(rows, P("data")), batch))


class SetsAnother(SetsItsMesh):
    """That of one device is not set."""

    def single_device(self, dtype):
        """Another class."""
        return NamesItsMesh({"data": 1})


class NamesItsMesh(SetsItsMesh):
    """It has a mesh, and sets none."""

    def __init__(self, axes=None, seed=0):
        DataParallel.__init__(self, axes, seed)


@pytest.mark.parametrize("kind", [SetsItsMesh, SetsAnother])
def test_each_trains_on_its_own_mesh(kind):
    """Whichever was made last."""
    with jax.set_mesh(None):
        trainer = kind()
        alone = on_one_device(trainer, "float32")
        assert jax.sharding.get_mesh() == trainer.mesh
        losses = []
        for each in (trainer, alone):
            state = each.init(jax.random.key(0))
            losses.append(float(each.train_step(state, each.shard_batch(each.batches(1)[0]))[1]["loss"]))
        assert np.isclose(*losses)
        start = host(canonical(alone.parameters(alone.init(jax.random.key(0))), "parameters"))
        case = Case(trainer.name, SimpleNamespace(single_device=lambda _: alone), {"data": 1}, "cpu")
        one = OneDevice(case, alone, True, start, trainer.batches(3))
        assert not one.retraced and np.isfinite(one.reference(one.training, 2).value.steps[0].loss)
        assert jax.sharding.get_mesh() == trainer.mesh


def test_a_trainer_that_sets_none_is_itself():
    """Nothing stands between."""
    assert type(on_one_device(DataParallel(), "float32")) is DataParallel
