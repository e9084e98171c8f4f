"""What is asked of a trainer of stacked layers: how many layers, on which axes, and by which optimizer.

One layer is ``x + tanh(x @ up + bias) @ down``, with up_DxF, bias_F, down_FxD. Stacked, each has the layers in front.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

D, F, BATCH = 16, 32, 8
"""Features of a layer's input, features in its middle, and examples of a batch."""

SHAPES = {"up": (D, F), "bias": (F,), "down": (F, D)}
"""The parameters of one layer."""

KERNELS = ("up", "down")
"""Those that begin with numbers of their own."""

MESH = {"data": 2, "model": 4}

Trees = Mapping[str, Any]
"""A tree of arrays by its part: ``parameters``, ``gradients``, ``optimizer_state``."""


@dataclass(frozen=True)
class Transformation:
    """An optimizer: what makes it from a tree of parameters, and how many arrays it keeps for each parameter."""

    name: str
    make: Callable[[], optax.GradientTransformation]
    kept: Mapping[str, int]


@dataclass(frozen=True)
class Plan:
    """So many stacked layers, with the layers themselves over the mesh axis ``over`` if there is one."""

    layers: int
    over: str | None = None

    def mesh(self) -> Mesh:
        """The mesh of eight devices."""
        return jax.make_mesh(tuple(MESH.values()), tuple(MESH), axis_types=(AxisType.Auto,) * len(MESH))

    def own_spec(self, name: str) -> tuple[str | None, ...]:
        """The axes of one layer's parameter: those of the mesh that the layers leave."""
        free = {axis: axis if axis != self.over else None for axis in MESH}
        return {
            "up": (free["data"], free["model"]),
            "bias": (free["model"],),
            "down": (free["model"], free["data"]),
        }[name]

    def spec(self, name: str) -> PartitionSpec:
        """The declared axes of a stacked parameter, and of all that an optimizer keeps for it."""
        return PartitionSpec(self.over, *self.own_spec(name))

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a stacked parameter."""
        return (self.layers, *SHAPES[name])


@dataclass(frozen=True)
class StackedLayers:
    """A way to make and train stacked layers, of that name.

    ``train`` yields, for each moment in the life of the state, what it is called and the trees that exist then. The
    key path of each leaf ends with the parameter's name and what a framework puts after it.
    """

    name: str
    train: Callable[[Plan, optax.GradientTransformation], Iterator[tuple[str, Trees]]]


def layer(x_BxD: jax.Array, parameters: Mapping[str, Any]) -> jax.Array:
    """One layer."""
    middle_BxF = jnp.tanh(x_BxD @ parameters["up"] + parameters["bias"])
    return x_BxD + middle_BxF @ parameters["down"]


def batch_on(mesh: Mesh) -> jax.Array:
    """The examples, split over ``data``."""
    x_BxD = np.random.default_rng(0).normal(size=(BATCH, D)).astype(np.float32)
    return jax.device_put(x_BxD, NamedSharding(mesh, PartitionSpec("data")))
