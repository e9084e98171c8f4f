"""Equinox, with its own ``filter_jit``: ``pytest suites/ --impl tests.healthy.equinox_trainers``."""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.sharding import PartitionSpec as P

from .trainer import LOSS, Trainer, by_path, filled, moves

SHAPES = ((32, 16), (32,), (8, 32), (8,))
OPTIMIZER = optax.chain(
    optax.clip_by_global_norm(1.0),
    optax.adamw(
        optax.warmup_cosine_decay_schedule(1e-3, 1e-2, 2, 10),
        weight_decay=1e-2,
        mask=lambda network: jax.tree.map(lambda leaf: leaf.ndim > 1, network),
    ),
)


def mean_loss(network, batch):
    """Of rows, one at a time."""
    return jnp.mean((jax.vmap(network)(batch["x"]) - batch["y"]) ** 2)


@eqx.filter_jit(donate="all")
def train_step(state, batch):
    """The network holds functions beside its arrays."""
    network, optimizer = state
    value, gradients = eqx.filter_value_and_grad(mean_loss)(network, batch)
    updates, optimizer = OPTIMIZER.update(gradients, optimizer, eqx.filter(network, eqx.is_inexact_array))
    return (eqx.apply_updates(network, updates), optimizer), {"loss": value, "norm": optax.tree.norm(gradients)}


class DataParallel(Trainer):
    """Clip, AdamW that decays matrices only, and a schedule."""

    name, framework = "filter_jit", "equinox"
    forward_moves = (LOSS,)
    step_moves = (moves("all-reduce", "gradients", *SHAPES), LOSS)
    train_step = staticmethod(train_step)
    loss = staticmethod(eqx.filter_jit(lambda state, batch: mean_loss(state[0], batch)))
    gradients = staticmethod(eqx.filter_jit(lambda state, batch: by_path(eqx.filter_grad(mean_loss)(state[0], batch))))

    def init(self, key):
        """Whole on every device."""
        return self.start(eqx.nn.MLP(16, 8, 32, 1, activation=jax.nn.gelu, key=key))

    def start(self, network):
        """With its optimizer."""
        state = network, OPTIMIZER.init(eqx.filter(network, eqx.is_inexact_array))
        return eqx.filter_shard(state, self.on_mesh())

    def load(self, parameters):
        """These values in a new network."""
        arrays, functions = eqx.partition(self.init(jax.random.key(0))[0], eqx.is_inexact_array)
        return self.start(eqx.combine(filled(arrays, parameters), functions))

    def parameters(self, state):
        """``layers/0/weight``."""
        return by_path(eqx.filter(state[0], eqx.is_inexact_array))

    def optimizer_state(self, state):
        """All that optax keeps."""
        return by_path(state[1])


class FSDP(DataParallel):
    """Every array is split along its first dimension, and gathered for the forward and backward pass."""

    name = "fsdp_filter_shard"
    stored = gradient = {"*": P("data")}
    moments = {"*count": P(), "*": P("data")}
    forward_moves = (moves("all-gather", "parameters", *SHAPES), LOSS)
    step_moves = (*forward_moves, moves("reduce-scatter", "gradients", *SHAPES), moves("all-reduce", "metrics", (8,)))

    def __init__(self, axes=None, seed=0):
        super().__init__(axes, seed)
        self.train_step = eqx.filter_jit(self.update, donate="all")
        self.loss = eqx.filter_jit(lambda state, batch: self.mean_loss(state[0], batch))
        self.gradients = eqx.filter_jit(lambda state, batch: by_path(self.value_and_gradients(state[0], batch)[1]))

    def mean_loss(self, network, batch):
        """Of the whole network."""
        return mean_loss(eqx.filter_shard(network, self.on_mesh()), batch)

    def value_and_gradients(self, network, batch):
        """Scattered, as they are stored."""
        value, gradients = eqx.filter_value_and_grad(self.mean_loss)(network, batch)
        return value, eqx.filter_shard(gradients, self.on_mesh("data"))

    def update(self, state, batch):
        """One step."""
        network, optimizer = state
        value, gradients = self.value_and_gradients(network, batch)
        updates, optimizer = OPTIMIZER.update(gradients, optimizer, eqx.filter(network, eqx.is_inexact_array))
        return (eqx.apply_updates(network, updates), optimizer), {"loss": value, "norm": optax.tree.norm(gradients)}

    def start(self, network):
        """Counters are whole."""
        state = network, OPTIMIZER.init(eqx.filter(network, eqx.is_inexact_array))
        arrays, functions = eqx.partition(state, eqx.is_array)
        split = jax.tree.map(lambda x: jax.device_put(x, self.on_mesh(*["data"] * bool(x.ndim))), arrays)
        return eqx.combine(split, functions)


def strategies():
    """All of them."""
    return [DataParallel(), FSDP()]
