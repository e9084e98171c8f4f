"""FSDP of a small perceptron, scanned over its layers, by hand: each layer is gathered in the body and recomputed.

L layers, B examples, D features, F hidden. Large enough that what a compiler sends too much takes longer than a hop.
"""

from __future__ import annotations

from functools import cached_property, partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from meshproof.contract import Communication, Contract

B, D, F = 64, 512, 2048
KERNEL, DEVICES = 4 * D * F, 8


gathered, scattered = (
    partial(Communication, operation, ("data",), payload, dtype="bfloat16")
    for operation, payload in (("all-gather", "parameters"), ("reduce-scatter", "gradients"))
)
metrics = Communication("all-reduce", ("data",), "metrics", 4)


def gather(w):
    """A layer's kernel, whole, in bfloat16."""
    return jax.lax.all_gather(w.astype(jnp.bfloat16), "data", axis=0, tiled=True)


class Trainer:
    """The healthy one. A fault replaces one of its members."""

    framework, model = "jax", "scanned"
    depth, rematerialises, explicit, budgeted, overlap, best_on_wire = 4, True, True, True, 0.2, True

    def __init__(self, name, **members):
        self.name = name
        self.mesh_axes = {"data": DEVICES}
        vars(self).update(members)

    def on(self, devices):
        """Itself on these devices."""
        own = {name: value for name, value in vars(self).items() if name != "mesh_axes"}
        other = type(self)(**own)
        other.mesh = Mesh(np.array(devices[:DEVICES]), ("data",), axis_types=(AxisType.Auto,))
        return other

    @cached_property
    def mesh(self):
        """All devices of this machine."""
        return Mesh(np.array(jax.devices()[:DEVICES]), ("data",), axis_types=(AxisType.Auto,))

    @property
    def contract(self):
        """Each kernel is gathered forward, and again backward; its gradient is scattered once."""
        kernels, sizes = self.depth * KERNEL, {"in_LxDxF": P(None, "data"), "out_LxFxD": P(None, "data")}
        return Contract(
            parameters=sizes,
            gradients=sizes,
            optimizer_state={},
            batch={"*": P("data")},
            computed={"*": P()},
            forward=(gathered(kernels), metrics) if self.budgeted else None,
            step=(gathered(2 * kernels), scattered(kernels), metrics) if self.budgeted else None,
            explicit=self.explicit,
            compute_dtype="bfloat16",
            rematerialises=self.rematerialises,
            best_on_wire=self.best_on_wire,
            overlap=self.overlap,
        )

    def gather(self, w):
        """A layer's kernel in use."""
        return gather(w)

    def recompute(self, body):
        """The body of the loop, whose activations are not kept."""
        return jax.checkpoint(body, prevent_cse=False)

    def layers(self, w):
        """What the loop goes over."""
        return w

    def apply(self, x, layer):
        """One layer."""
        h = jax.nn.relu(x @ self.gather(layer["in_LxDxF"]))
        return x + h @ self.gather(layer["out_LxFxD"])

    def local_loss(self, w, batch):
        """The mean over a device's own examples."""

        def body(x, layer):
            return self.apply(x, layer), None

        x, _ = jax.lax.scan(self.recompute(body), batch["x"].astype(jnp.bfloat16), self.layers(w))
        return jnp.mean((x.astype(jnp.float32) - batch["y"]) ** 2)

    def global_loss(self, w, batch):
        """The mean over all examples."""
        return jax.lax.pmean(self.local_loss(w, batch), "data")

    def local_gradients(self, w, batch):
        """The loss, and a device's own part of the summed gradients."""
        return jax.value_and_grad(self.global_loss)(w, batch)

    def update(self, w, gradients):
        """The new kernels."""
        return jax.tree.map(lambda w, g: w - 0.01 * g, w, gradients)

    def over_devices(self, function, out_specs):
        """A function of the parts that each device holds."""
        specs = self.contract.parameters
        return partial(jax.shard_map, mesh=self.mesh, in_specs=(specs, P("data")), out_specs=out_specs)(function)

    @cached_property
    def loss(self):
        """The forward pass."""
        return jax.jit(self.over_devices(self.global_loss, P()))

    @cached_property
    def gradients(self):
        """Those of the global batch."""
        return jax.jit(self.over_devices(lambda w, batch: self.local_gradients(w, batch)[1], self.contract.parameters))

    @cached_property
    def train_step(self):
        """One step of gradient descent, which donates its state."""

        def step(w, batch):
            value, gradients = self.local_gradients(w, batch)
            return self.update(w, gradients), {"loss": value}

        specs = self.contract.parameters
        return jax.jit(self.over_devices(step, (specs, {"loss": P()})), donate_argnums=0)

    @cached_property
    def init(self):
        """Random kernels, sharded as they are made."""

        def create(key):
            one, two = jax.random.split(key)
            return {
                "in_LxDxF": jax.random.normal(one, (self.depth, D, F)) / D**0.5,
                "out_LxFxD": jax.random.normal(two, (self.depth, F, D)) / F**0.5,
            }

        placed = {name: NamedSharding(self.mesh, spec) for name, spec in self.contract.parameters.items()}
        return jax.jit(create, out_shardings=placed)

    def batches(self, count):
        """Normal features and targets."""
        rng = np.random.default_rng(0)
        return [{name: rng.normal(size=(B, D)).astype(np.float32) for name in "xy"} for _ in range(count)]

    def shard_batch(self, batch):
        """Split over the devices."""
        return jax.device_put(batch, NamedSharding(self.mesh, P("data")))

    def parameters(self, state):
        """The state is its parameters."""
        return state

    def optimizer_state(self, state):
        """There is none."""
        return {}
