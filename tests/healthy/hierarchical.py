"""Slow links beside fast ones, by hand: ``pytest suites/ --impl tests.healthy.hierarchical``."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jax.sharding import PartitionSpec as P

from .manual import HSDP, Manual
from .trainer import moves

BOTH = ("host", "chip")
LENGTH = 16 * 33 + 33 * 7
PADDED = LENGTH + 1


class Hierarchical(Manual):
    """Chips of a host share what is summed between hosts. Gradients are one vector, which four chips cannot share
    without a zero at its end."""

    name, model = "hierarchical", "odd_mlp"
    axes = {"host": 2, "chip": 4}
    rows = P(BOTH)
    shapes = {"hidden": (16, 33), "out": (33, 7)}
    forward_moves = (moves("all-reduce", "metrics", (), over=BOTH),)
    step_moves = (
        *forward_moves,
        moves("reduce-scatter", "gradients", (PADDED,), over=("chip",)),
        moves("all-reduce", "gradients", (PADDED // 4,), over=("host",)),
        moves("all-gather", "gradients", (PADDED,), over=("chip",)),
    )

    def batch(self, draws):
        """Seven columns to fit."""
        given = super().batch(draws)
        return given | {"y": given["y"][:, :7]}

    def mean(self, value):
        """Of all devices."""
        return jax.lax.pmean(value, BOTH)

    def value_and_gradients(self, w, batch):
        """Of this device's examples, then the mean of all."""

        def local(w, batch):
            value, gradients = jax.value_and_grad(super(Manual, self).mean_loss)(w, batch)
            vector, back = ravel_pytree(gradients)
            return self.mean(value), back(self.summed(vector) / self.mesh.size)

        whole = jax.shard_map(local, mesh=self.mesh, in_specs=(P(), self.rows), out_specs=P(), check_vma=False)
        return whole(w, batch)

    def summed(self, vector):
        """Over all devices."""
        padded = jnp.pad(vector, (0, -vector.size % self.mesh.shape["chip"]))
        shard = jax.lax.psum_scatter(padded, "chip", tiled=True)
        return jax.lax.all_gather(self.between_hosts(shard), "chip", tiled=True)[: vector.size]

    def between_hosts(self, shard):
        """Over those that have the same shard."""
        return jax.lax.psum(shard, "host")


def in_halves(line):
    """A line of a budget, but for metrics, in bfloat16."""
    return line if line.payload == "metrics" else replace(line, bytes=line.bytes // 2, dtype="bfloat16")


class HSDPInHalves(HSDP):
    """Casts its shards first: what is gathered, scattered and exchanged has 16 bits."""

    name = "hsdp_in_halves"
    promises = HSDP.promises | {"compute_dtype": "bfloat16"}
    forward_moves = tuple(in_halves(line) for line in HSDP.forward_moves)
    step_moves = tuple(in_halves(line) for line in HSDP.step_moves)

    def local_loss(self, w, batch):
        """Of parameters and inputs in bfloat16."""
        w, batch = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), (w, batch))
        return super().local_loss(w, batch)

    def mean(self, value):
        """Of all devices, in float32."""
        return super().mean(value.astype(jnp.float32))


class FrozenHSDP(HSDP):
    """Trains its last layer alone. What is frozen is gathered, and nobody exchanges a gradient of it (openpi)."""

    name = "hsdp_with_a_frozen_layer"
    trained = ("out",)
    gradient = {"out": P("data")}
    optimizer = optax.multi_transform(
        {"train": optax.adamw(1e-2), "freeze": optax.set_to_zero()}, {"hidden": "freeze", "out": "train"}
    )
    step_moves = (
        *HSDP.forward_moves,
        moves("reduce-scatter", "gradients", HSDP.shapes["out"]),
        moves("all-reduce", "gradients", (32 // 4, 8), over=("replica",)),
    )


def strategies():
    """All of them."""
    return [Hierarchical(), HSDPInHalves(), FrozenHSDP()]
