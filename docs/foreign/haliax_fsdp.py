"""FSDP with haliax and equinox: ``pytest suites/ --impl docs.foreign.haliax_fsdp``.

Layers, axis mappings and ``named_jit`` are haliax's, the gradient is equinox's. Sharding is said as haliax says it:
one mapping of axis names for what is computed, another for what is kept.
"""

import equinox as eqx
import haliax as hax
import jax
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from meshproof.contract import Communication, Contract

BATCH, EMBED, HIDDEN, OUT = hax.make_axes(batch=64, embed=16, hidden=32, out=8)
COMPUTE, PARAMETERS = {"batch": "data"}, {"embed": "data", "out": "data"}
OPTIMIZER = optax.adam(1e-2)

WHOLE, ROWS = PartitionSpec(), PartitionSpec("data")
LAYOUT = {"*hidden/weight": PartitionSpec(None, "data"), "*hidden/bias": WHOLE, "*out/*": ROWS}
SHARDED, UNSHARDED = 4 * (HIDDEN.size * EMBED.size + OUT.size * HIDDEN.size + OUT.size), 4 * HIDDEN.size
GATHER, LOSS = (
    Communication("all-gather", ("data",), "parameters", SHARDED),
    Communication("all-reduce", ("data",), "metrics", 4),
)


class Network(eqx.Module):
    hidden: hax.nn.Linear
    out: hax.nn.Linear

    @staticmethod
    def init(key):
        one, other = jax.random.split(key)
        return Network(hax.nn.Linear.init(EMBED, HIDDEN, key=one), hax.nn.Linear.init(HIDDEN, OUT, key=other))

    def __call__(self, x):
        return self.out(hax.tanh(self.hidden(x)))


def loss(model, batch):
    x, y = hax.named(batch["x"], (BATCH, EMBED)), hax.named(batch["y"], (BATCH, OUT))
    return hax.mean((model(x) - y) ** 2).scalar()


def start(model):
    return model, OPTIMIZER.init(eqx.filter(model, eqx.is_array))


@hax.named_jit(axis_resources=COMPUTE, out_axis_resources=PARAMETERS, donate_args=(True, False))
def train_step(state, batch):
    model, optimizer = state
    value, gradients = eqx.filter_value_and_grad(loss)(model, batch)
    updates, optimizer = OPTIMIZER.update(gradients, optimizer, model)
    return (eqx.apply_updates(model, updates), optimizer), {"loss": value}


class OnMesh:
    """A function of haliax, called and lowered under a mesh."""

    def __init__(self, trainer, function):
        self.trainer, self.function = trainer, function

    def __call__(self, *arguments):
        with hax.partitioning.set_mesh(self.trainer.mesh):
            return self.function(*arguments)

    def lower(self, *arguments):
        with hax.partitioning.set_mesh(self.trainer.mesh):
            return self.function.lower(*arguments)


class FSDP:
    name, framework, model = "fsdp", "haliax", "mlp"
    contract = Contract(
        parameters=LAYOUT,
        gradients=LAYOUT,
        optimizer_state={"count": WHOLE} | LAYOUT,
        batch={"*": ROWS},
        forward=(GATHER, LOSS),
        step=(
            GATHER,
            Communication("reduce-scatter", ("data",), "gradients", SHARDED),
            Communication("all-reduce", ("data",), "gradients", UNSHARDED),
            LOSS,
        ),
    )

    def __init__(self, devices=8):
        self.mesh_axes = {"data": devices}
        kept = {"axis_resources": COMPUTE, "out_axis_resources": PARAMETERS}
        self.init = OnMesh(self, hax.named_jit(lambda key: start(Network.init(key)), axis_resources=PARAMETERS))
        self.start = OnMesh(self, hax.named_jit(start, axis_resources=PARAMETERS))
        self.train_step = OnMesh(self, train_step)
        self.loss = OnMesh(self, hax.named_jit(lambda state, batch: loss(state[0], batch), axis_resources=COMPUTE))
        self.slope = OnMesh(self, hax.named_jit(lambda state, batch: eqx.filter_grad(loss)(state[0], batch), **kept))

    @property
    def mesh(self):
        return Mesh(np.array(jax.devices()[: self.mesh_axes["data"]]), ("data",))

    def load(self, parameters):
        def named(layer, *axes):
            return hax.named(layer["weight"], axes), hax.named(layer["bias"], axes[0])

        model = Network.init(jax.random.key(0))
        hidden, out = named(parameters["hidden"], HIDDEN, EMBED), named(parameters["out"], OUT, HIDDEN)
        model = eqx.tree_at(
            lambda m: (m.hidden.weight, m.hidden.bias, m.out.weight, m.out.bias), model, (*hidden, *out)
        )
        return self.start(jax.device_put(model, NamedSharding(self.mesh, WHOLE)))

    def batches(self, count):
        draws = np.random.default_rng(0)
        shapes = {"x": (BATCH.size, EMBED.size), "y": (BATCH.size, OUT.size)}
        return [{name: draws.normal(size=shape) for name, shape in shapes.items()} for _ in range(count)]

    def shard_batch(self, batch):
        return jax.device_put(batch, NamedSharding(self.mesh, ROWS))

    def gradients(self, state, batch):
        return canonical(self.slope(state, batch))

    def parameters(self, state):
        return canonical(state[0])

    def optimizer_state(self, state):
        adam = state[1][0]
        return {"count": adam.count, "mu": canonical(adam.mu), "nu": canonical(adam.nu)}

    def single_device(self, dtype):
        return FSDP(devices=1)


def canonical(model):
    layers = {"hidden": model.hidden, "out": model.out}
    return {name: {"weight": layer.weight.array, "bias": layer.bias.array} for name, layer in layers.items()}


def strategies():
    return [FSDP()]
