"""NNX: ``pytest suites/ --impl tests.healthy.nnx_trainers``."""

from functools import cached_property

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax.sharding import PartitionSpec as P

from .trainer import LOSS, WHOLE, Trainer, by_path, moves


class Block(nnx.Module):
    """A norm and a layer, added."""

    def __init__(self, rngs):
        self.norm, self.layer = nnx.LayerNorm(16, rngs=rngs), nnx.Linear(16, 16, rngs=rngs)

    def __call__(self, x):
        """Of (rows, 16)."""
        return x + nnx.gelu(self.layer(self.norm(x)))


class Stacked(nnx.Module):
    """Three blocks in arrays with a leading dimension of layers."""

    def __init__(self, rngs):
        @nnx.split_rngs(splits=3)
        @nnx.vmap(in_axes=(0,), out_axes=0)
        def create(rngs):
            return Block(rngs)

        self.blocks, self.out = create(rngs), nnx.Linear(16, 8, rngs=rngs)

    def __call__(self, x):
        """One block after the other, by one loop."""

        @nnx.scan(in_axes=(0, nnx.Carry), out_axes=nnx.Carry)
        def forward(block, x):
            return block(x)

        return self.out(forward(self.blocks, x))


class Wide(nnx.Module):
    """One hidden layer, whose parameters are annotated."""

    def __init__(self, rngs):
        kernel = nnx.with_partitioning(nnx.initializers.lecun_normal(), ("data",))
        bias = nnx.with_partitioning(nnx.initializers.zeros, ("data",))
        self.hidden = nnx.Linear(16, 32, kernel_init=kernel, bias_init=bias, rngs=rngs)
        self.out = nnx.Linear(32, 8, kernel_init=kernel, bias_init=bias, rngs=rngs)

    def __call__(self, x):
        """Of (rows, 16)."""
        return self.out(nnx.gelu(self.hidden(x)))


class Regularised(nnx.Module):
    """A hidden layer behind a batch norm, half of it dropped."""

    def __init__(self, rngs):
        self.hidden, self.norm = nnx.Linear(16, 32, rngs=rngs), nnx.BatchNorm(32, rngs=rngs)
        self.drop, self.out = nnx.Dropout(0.5, rngs=rngs), nnx.Linear(32, 8, rngs=rngs)

    def __call__(self, x):
        """Of (rows, 16)."""
        return self.out(self.drop(nnx.gelu(self.norm(self.hidden(x)))))


def mean_loss(network, batch):
    """Of the global batch."""
    return jnp.mean((network(batch["x"]) - batch["y"]) ** 2)


class NNX(Trainer):
    """A network and its optimizer, both changed in place."""

    framework = "nnx"
    optimizer = optax.adamw(1e-2)  # made once: ``nnx.jit`` compiles again for another one
    mean_loss = staticmethod(mean_loss)

    def __init__(self, axes=None, seed=0):
        super().__init__(axes, seed)
        self.train_step = nnx.jit(self.update, donate_argnums=0)
        self.loss = nnx.jit(lambda state, batch: self.mean_loss(state[0], batch))
        self.gradients = nnx.jit(lambda state, batch: nnx.to_pure_dict(self.value_and_gradients(state[0], batch)[1]))

    def update(self, state, batch):
        """One step."""
        network, optimizer = state
        value, gradients = self.value_and_gradients(network, batch)
        optimizer.update(network, gradients)
        return state, {"loss": value}

    def value_and_gradients(self, network, batch):
        """Of the global batch."""
        return nnx.value_and_grad(self.mean_loss)(network, batch)

    def init(self, key):
        """With its optimizer."""
        with jax.set_mesh(self.mesh):
            return self.start(self.create(nnx.Rngs(key)))

    def start(self, network):
        """Arrays that have no layout yet, as counters, are put on every device."""
        state = network, nnx.Optimizer(network, self.optimizer, wrt=nnx.Param)
        return jax.tree.map(lambda x: x if len(x.devices()) > 1 else jax.device_put(x, self.on_mesh()), state)

    @cached_property
    def blank(self):
        """A network whose values do not matter."""
        return nnx.split(self.create(nnx.Rngs(0)))

    def load(self, parameters):
        """These values in a new network."""
        with jax.set_mesh(self.mesh):
            graph, arrays = self.blank
            network = nnx.merge(graph, jax.tree.map(jnp.copy, arrays))
            nnx.update(network, jax.tree.map(jnp.asarray, dict(parameters)))
            return self.start(network)

    def parameters(self, state):
        """By name."""
        return nnx.to_pure_dict(nnx.state(state[0], nnx.Param))

    def optimizer_state(self, state):
        """All that optax keeps."""
        return by_path(nnx.to_pure_dict(nnx.state(state[1], nnx.optimizer.OptState)))


class StackedLayers(NNX):
    """Layers of one shape, stacked by ``nnx.vmap`` and run by ``nnx.scan``."""

    name, create = "stacked_layers", Stacked
    forward_moves = (LOSS,)
    step_moves = (moves("all-reduce", "gradients", (3, 16), (3, 16), (3, 16, 16), (3, 16), (16, 8), (8,)), LOSS)


class FSDP(NNX):
    """Annotated parameters, and an optimizer that lies as they do."""

    name, create = "fsdp", Wide
    stored = gradient = {"*": P("data")}
    moments = {"*count": P(), "step": P(), "*": P("data")}
    forward_moves = (moves("all-gather", "parameters", (16, 32), (32,), (32, 8), (8,)), LOSS)
    step_moves = (*forward_moves, moves("reduce-scatter", "gradients", (16, 32), (32,), (32, 8), (8,)))

    def mean_loss(self, network, batch):
        """Of gathered parameters."""
        graph, parameters = nnx.split(network)
        return mean_loss(nnx.merge(graph, jax.lax.with_sharding_constraint(parameters, self.on_mesh())), batch)

    def value_and_gradients(self, network, batch):
        """Scattered, as they are stored."""
        value, gradients = super().value_and_gradients(network, batch)
        return value, jax.lax.with_sharding_constraint(gradients, self.on_mesh("data"))


class BatchNormAndDropout(NNX):
    """Statistics of all rows, and keys and counters in the network, which a step moves on."""

    name, create = "batch_norm_dropout", Regularised
    draws = True
    promises = {"auxiliary": WHOLE}
    forward_moves = (moves("all-reduce", "statistics", (32,), (32,)), LOSS)
    step_moves = (
        *forward_moves,
        moves("all-reduce", "statistics", (32,)),
        moves("all-reduce", "gradients", (16, 32), (32,), (32,), (32,), (32, 8), (8,)),
    )

    def __init__(self, axes=None, seed=0):
        super().__init__(axes, seed)
        self.loss = nnx.jit(lambda state, batch: self.mean_loss(nnx.clone(state[0]), batch))
        self.gradients = nnx.jit(
            lambda state, batch: nnx.to_pure_dict(self.value_and_gradients(nnx.clone(state[0]), batch)[1])
        )

    def auxiliary(self, state):
        """Running statistics, keys and counters."""
        return by_path(nnx.to_pure_dict(nnx.state(state[0], (nnx.BatchStat, nnx.RngState))))


def strategies():
    """All of them."""
    return [StackedLayers(), FSDP(), BatchNormAndDropout()]
