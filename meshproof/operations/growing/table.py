"""Programs of many layers: written out, repeated by ``scan``, rematerialised, per device, and called as functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec

from meshproof.operations.growing import GrowingProgram
from meshproof.operations.programs import make_mesh

ROWS = 16

Layer = Callable[[Any, Any], Any]


def layer(x: Any, w: Any) -> Any:
    """One layer of a residual network."""
    return x + jnp.tanh(x @ w) @ w.T


def arrays(depth: int, width: int, stacked: bool) -> tuple[Any, Any]:
    """The shapes of an input, split over a mesh of 8 devices, and of the layers' weights."""
    mesh = make_mesh((8,))
    x = jax.ShapeDtypeStruct((ROWS, width), "float32", sharding=NamedSharding(mesh, PartitionSpec("a")))
    lead = (depth,) if stacked else ()
    w = jax.ShapeDtypeStruct((*lead, width, width), "float32", sharding=NamedSharding(mesh, PartitionSpec()))
    return x, w if stacked else [w] * depth


def step(loss: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A step of gradient descent."""

    def run(x: Any, w: Any) -> Any:
        return jax.tree.map(lambda own, slope: own - slope / 8, w, jax.grad(loss, 1)(x, w))

    return run


def written_out(own: Callable[[], Layer]) -> Callable[[int, int], tuple[Any, Any]]:
    """A program with every layer in it, of a layer that is made for it."""

    def make(depth: int, width: int) -> tuple[Any, Any]:
        apply = own()

        def loss(x: Any, w: Any) -> Any:
            for each in w:
                x = apply(x, each)
            return (x**2).mean()

        return step(loss), arrays(depth, width, stacked=False)

    return make


def scanned(depth: int, width: int) -> tuple[Any, Any]:
    """A program with a loop over the layers."""

    def loss(x: Any, w: Any) -> Any:
        return (lax.scan(lambda x, each: (layer(x, each), None), x, w)[0] ** 2).mean()

    return step(loss), arrays(depth, width, stacked=True)


def per_device(depth: int, width: int) -> tuple[Any, Any]:
    """A program with every layer in it, and a sum over the devices in each."""
    mesh = make_mesh((8,))

    def shard(x: Any, w: Any) -> Any:
        for each in w:
            x = layer(x, each) + lax.pmean(x, "a")
        return lax.pmean((x**2).mean(), "a")

    specs = (PartitionSpec("a"), PartitionSpec())
    loss = jax.shard_map(shard, mesh=mesh, in_specs=specs, out_specs=PartitionSpec())
    return step(loss), arrays(depth, width, stacked=False)


PROGRAMS = (
    GrowingProgram("layers", written_out(lambda: layer)),
    GrowingProgram("rematerialised", written_out(lambda: jax.checkpoint(layer))),
    GrowingProgram("called", written_out(lambda: jax.jit(lambda x, w: layer(x, w)))),
    GrowingProgram("per_device", per_device),
    GrowingProgram("scanned", scanned, looped=True),
)
