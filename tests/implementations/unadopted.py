"""Trainers as people write them, with the three members that cannot be guessed: what `meshproof adopt` is tried on."""

from types import SimpleNamespace
from typing import ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from flax.training.train_state import TrainState
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P


class Sizes(dict):
    """Whose keys are attributes, and which raises ``KeyError`` for others, as people keep their settings."""

    __getattr__ = dict.__getitem__


SIZES = Sizes(inputs=16, hidden=32, outputs=8)

ADAM = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-2))


def mesh():
    """One axis."""
    return Mesh(np.array(jax.devices()), ("data",))


def place(tree, *spec):
    """On the mesh."""
    return jax.device_put(tree, NamedSharding(mesh(), P(*spec)))


def host_batch(seed=0):
    """64 rows."""
    draws = np.random.default_rng(seed)
    return {name: draws.normal(size=(64, width)).astype(np.float32) for name, width in (("x", 16), ("y", 8))}


def squared(predicted, batch):
    """The mean loss."""
    return jnp.mean((predicted - batch["y"]) ** 2)


def start(key):
    """Two matrices."""
    one, other = jax.random.split(key)
    hidden = jax.random.normal(one, (SIZES.inputs, SIZES.hidden)) / 4
    return {"hidden": hidden, "out": jax.random.normal(other, (SIZES.hidden, SIZES.outputs)) / 6}


def plain_loss(params, batch):
    """Of a hidden layer."""
    return squared(jnp.tanh(batch["x"] @ params["hidden"]) @ params["out"], batch)


def plain_step(state, batch):
    """Of a plain optax loop."""
    loss, gradients = jax.value_and_grad(plain_loss)(state["params"], batch)
    updates, optimizer = ADAM.update(gradients, state["opt_state"], state["params"])
    return {"params": optax.apply_updates(state["params"], updates), "opt_state": optimizer}, {"loss": loss}


class PlainLoop:
    """A state, a step and a batch, all of them attributes."""

    def __init__(self):
        params = start(jax.random.key(0))
        self.state = place({"params": params, "opt_state": ADAM.init(params)})
        self.batch = place(host_batch(), "data")
        self.train_step = jax.jit(plain_step, donate_argnums=0)


class Averaging(PlainLoop):
    """The same with an average of its parameters."""

    def __init__(self):
        super().__init__()
        self.state |= {"ema": jax.tree.map(jnp.copy, self.state["params"])}
        self.train_step = jax.jit(self.step, donate_argnums=0)

    @staticmethod
    def step(state, batch):
        """Which moves a hundredth of the way."""
        new, metrics = plain_step({name: state[name] for name in ("params", "opt_state")}, batch)
        return new | {"ema": optax.incremental_update(new["params"], state["ema"], 0.01)}, metrics


class SplitsInside(PlainLoop):
    """Its batch enters whole, and is split in the step's first line."""

    def __init__(self):
        super().__init__()
        self.batch = place(host_batch())
        self.train_step = jax.jit(self.step, donate_argnums=0)

    @staticmethod
    def step(state, batch):
        """By rows."""
        return plain_step(state, jax.lax.with_sharding_constraint(batch, NamedSharding(mesh(), P("data"))))


class Network(nnx.Module):
    """Two layers and a normalisation."""

    def __init__(self, rngs):
        self.hidden, self.out = nnx.Linear(16, 32, rngs=rngs), nnx.Linear(32, 8, rngs=rngs)

    def __call__(self, x):
        """Forward."""
        return self.out(nnx.tanh(self.hidden(x)))


class ShardedModules:
    """NNX, its kernels and moments split over the axis of the batch, gathered by a constraint."""

    def init(self, key):
        """A model and its optimizer."""
        model = Network(nnx.Rngs(key))
        state = (model, nnx.Optimizer(model, ADAM, wrt=nnx.Param))
        return jax.tree.map(lambda leaf: place(leaf, *["data"] * (leaf.ndim > 1)), state)

    def batches(self, count):
        """On the host."""
        return [host_batch(seed) for seed in range(count)]

    def shard_batch(self, batch):
        """By rows."""
        return place(batch, "data")

    @staticmethod
    @nnx.jit(donate_argnums=0)
    def train_step(state, batch):
        """Gathers what it computes with."""
        model, optimizer = state

        def loss(model):
            graph, parameters = nnx.split(model)
            whole = jax.lax.with_sharding_constraint(parameters, NamedSharding(mesh(), P()))
            return squared(nnx.merge(graph, whole)(batch["x"]), batch)

        value, gradients = nnx.value_and_grad(loss)(model)
        shards = jax.tree.map(lambda leaf: NamedSharding(mesh(), P(*["data"] * (leaf.ndim > 1))), gradients)
        gradients = jax.lax.with_sharding_constraint(gradients, shards)
        optimizer.update(model, gradients)
        return state, {"loss": value}


class DropNetwork(nnx.Module):
    """Two layers, and dropout between them."""

    def __init__(self, rngs):
        self.hidden, self.out = nnx.Linear(16, 32, rngs=rngs), nnx.Linear(32, 8, rngs=rngs)
        self.drop = nnx.Dropout(0.1, rngs=rngs)

    def __call__(self, x):
        """Forward."""
        return self.out(self.drop(nnx.tanh(self.hidden(x))))


class NormNetwork(nnx.Module):
    """Two layers, and BatchNorm between them, whose statistics have the shape of a bias."""

    def __init__(self, rngs):
        self.hidden, self.out = nnx.Linear(16, 32, rngs=rngs), nnx.Linear(32, 8, rngs=rngs)
        self.norm = nnx.BatchNorm(32, rngs=rngs)

    def __call__(self, x):
        """Forward."""
        return self.out(jnp.tanh(self.norm(self.hidden(x))))


class Dropping(ShardedModules):
    """Whole modules with dropout, whose keys and counters stand among the parameters."""

    network = DropNetwork

    def __init__(self, devices=8):
        self.mesh = Mesh(np.array(jax.devices()[:devices]), ("data",))

    def init(self, key):
        """A model and its optimizer."""
        model = self.network(nnx.Rngs(key))
        state = (model, nnx.Optimizer(model, ADAM, wrt=nnx.Param))
        return jax.device_put(state, NamedSharding(self.mesh, P()))

    def shard_batch(self, batch):
        """By rows."""
        return jax.device_put(batch, NamedSharding(self.mesh, P("data")))

    @staticmethod
    @nnx.jit(donate_argnums=0)
    def train_step(state, batch):
        """As NNX's own examples have it."""
        model, optimizer = state
        value, gradients = nnx.value_and_grad(lambda model: squared(model(batch["x"]), batch))(model)
        optimizer.update(model, gradients)
        return state, {"loss": value}


class Normalising(Dropping):
    """Whole modules with running statistics."""

    network = NormNetwork


class Dense(nn.Module):
    """Two layers."""

    @nn.compact
    def __call__(self, x):
        """Forward."""
        return nn.Dense(8, name="out")(nn.tanh(nn.Dense(32, name="hidden")(x)))


def linen_loss(state, batch):
    """By the state's own function."""
    return jnp.mean((state.apply_fn({"params": state.params}, batch["x"]) - batch["y"]) ** 2)


@jax.jit(donate_argnums=0)
def linen_step(state, batch):
    """One update."""
    value, gradients = jax.value_and_grad(lambda params: linen_loss(state.replace(params=params), batch))(state.params)
    return state.apply_gradients(grads=gradients), {"loss": value}


def linen(devices=8):
    """A function that makes a trainer of a Linen TrainState, with all that can be looked at."""
    devices = Mesh(np.array(jax.devices()[:devices]), ("data",))
    network = Dense()

    def init(key):
        params = network.init(key, jnp.ones((1, 16)))["params"]
        state = TrainState.create(apply_fn=network.apply, params=params, tx=ADAM)
        return jax.device_put(state, NamedSharding(devices, P()))

    return SimpleNamespace(
        mesh=devices,
        init=init,
        batches=lambda count: [host_batch(seed) for seed in range(count)],
        shard_batch=lambda batch: jax.device_put(batch, NamedSharding(devices, P("data"))),
        train_step=linen_step,
        loss=jax.jit(linen_loss),
        gradients=jax.jit(
            lambda state, batch: jax.grad(lambda p: linen_loss(state.replace(params=p), batch))(state.params)
        ),
    )


class GathersTokens:
    """Eight experts over the axis that splits the batch; every one sees all tokens, by gathers and scatters."""

    computed: ClassVar = {"up": P("data"), "down": P("data")}

    def __init__(self):
        up, down, router = jax.random.split(jax.random.key(0), 3)
        experts = {"up": jax.random.normal(up, (8, 16, 24)) / 4, "down": jax.random.normal(down, (8, 24, 16)) / 5}
        params = place(experts, "data") | place({"router": jax.random.normal(router, (16, 8)) / 4})
        moments = jax.tree.map(lambda leaf: leaf if leaf.ndim else place(leaf), ADAM.init(params))
        self.state = {"params": params, "opt_state": moments}
        self.batch = place({"x": host_batch()["x"], "y": host_batch(1)["x"]}, "data")
        kept = jax.tree.map(lambda leaf: leaf.sharding, self.state)
        self.train_step = jax.jit(self.step, donate_argnums=0, out_shardings=(kept, None))

    @staticmethod
    def loss_of(params, batch):
        """Of what a router sums of them."""
        keep = jax.lax.with_sharding_constraint
        of_experts, of_tokens, whole = (NamedSharding(mesh(), P(*spec)) for spec in (("data",), ("data",), ()))
        shares = keep(keep(jax.nn.softmax(batch["x"] @ params["router"]), of_tokens), whole)
        hidden = jnp.tanh(keep(jnp.einsum("td,edf->etf", keep(batch["x"], whole), params["up"]), of_experts))
        shares = keep(shares, NamedSharding(mesh(), P(None, "data")))
        return squared(keep(jnp.einsum("etf,efd,te->td", hidden, params["down"], shares), of_tokens), batch)

    def step(self, state, batch):
        """Of a plain optax loop."""
        loss, gradients = jax.value_and_grad(self.loss_of)(state["params"], batch)
        updates, optimizer = ADAM.update(gradients, state["opt_state"], state["params"])
        return {"params": optax.apply_updates(state["params"], updates), "opt_state": optimizer}, {"loss": loss}


class GathersTokensUnsaid(GathersTokens):
    """The same, without a word of how experts are computed with."""

    computed: ClassVar = {}
