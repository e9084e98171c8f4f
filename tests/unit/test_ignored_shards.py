"""Which shards of a batch a first step does not take part of."""

import jax
import optax
import pytest

from meshproof.cases import Case
from meshproof.observing.draws import ignored_shards
from meshproof.observing.seen import NotSupported
from meshproof.observing.subject import Subject
from tests.healthy.recipes import DataParallel

WARM_UP = optax.linear_schedule(0.0, 1e-2, 5)


class WarmsUp(DataParallel):
    """Its first rate is 0, and it shows no gradients."""

    gradients = None
    optimizer = optax.adamw(WARM_UP, weight_decay=0.0)


class WarmsUpWithoutMoments(WarmsUp):
    """Of which nothing is left."""

    optimizer = optax.sgd(WARM_UP)


class FirstHalf(WarmsUp):
    """Of a mesh half of the devices count."""

    def mean_loss(self, w, batch):
        """Of the first rows."""
        kept = jax.tree.map(lambda rows: rows[: len(rows) // 2], batch) if self.mesh_axes["data"] > 1 else batch
        return super().mean_loss(w, kept)


def ignored(kind):
    """By the trainer on eight devices."""
    trainer = kind()
    return ignored_shards(Subject(Case(kind.__name__, trainer, trainer.mesh_axes, "cpu")))


@pytest.mark.parametrize(("kind", "shards"), [(WarmsUp, ()), (FirstHalf, (4, 5, 6, 7))])
def test_moments_tell_what_a_rate_of_zero_hides(kind, shards):
    """The first update is 0 for everybody."""
    assert ignored(kind) == shards


def test_a_step_that_changes_nothing_tells_nothing():
    """It is not judged, with what would open it."""
    seen = ignored(WarmsUpWithoutMoments)
    assert isinstance(seen, NotSupported) and "show its gradients" in seen.reason
