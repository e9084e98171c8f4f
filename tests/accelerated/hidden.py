"""A state with more than its members show, of which only its shapes are told: ``--impl tests.accelerated.hidden``."""

import jax
from jax.sharding import NamedSharding, PartitionSpec

from docs.adapters.optax_loop import DataParallel


@jax.jit(donate_argnums=0)
def train_step(state, batch):
    """The copy stays what it was."""
    after, metrics = DataParallel.train_step(state, batch)
    return after | {"copy": state["copy"]}, metrics


class HidesACopy(DataParallel):
    """A copy of the parameters, as of an average, that nothing shows."""

    name, split = "hides_a_copy", ()
    train_step = staticmethod(train_step)

    def load(self, parameters):
        """Beside the rest."""
        return super().load(parameters) | {
            "copy": jax.device_put(parameters, NamedSharding(self.mesh, PartitionSpec()))
        }

    def abstract_state(self):
        """As ``init`` makes it, which cannot be lowered."""
        whole, own = (NamedSharding(self.mesh, PartitionSpec(*axes)) for axes in ((), self.split))
        shapes = {"w_in": (16, 32), "w_out": (32, 8)}
        leaves, copies = (
            {name: jax.ShapeDtypeStruct(shape, "float32", sharding=own) for name, shape in shapes.items()} for _ in "12"
        )
        moments = jax.eval_shape(lambda leaves: DataParallel.load(self, leaves)["optimizer"], leaves)
        moments = jax.tree.map(lambda leaf: leaf.update(sharding=whole), moments)
        return {"parameters": leaves, "optimizer": moments, "copy": copies}


class SplitsWhatIsWhole(HidesACopy):
    """And its parameters lie otherwise than declared."""

    name, split = "splits_what_is_whole", ("data",)


def strategies():
    """Both."""
    return [HidesACopy(), SplitsWhatIsWhole()]
