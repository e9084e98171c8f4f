"""The MLP whose inner layers are alike and stacked: what a pipeline can cut into stages.

Dims: B batch, E width of what a stage sends, F inner width, C classes, L pairs of layers. The network is that of
``mlp``: an input layer, L pairs (E→F, F→E), a head. At rest the pairs are one array per parameter, with ``layers`` as
its first logical axis; the canonical tree has them one by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.nn.initializers import lecun_uniform

from reference_impl.models import mlp
from reference_impl.models.layout import Layout
from reference_impl.models.staged import Staged
from reference_impl.truth import MLPTruth, Optimizer

SEED = 2798
"""With it no pre-activation of the default shape comes so near 0 that its ReLU may flip in float32 (see the truth)."""


@dataclass(frozen=True)
class StackedMLP(mlp.MLP, Staged):
    """``widths`` are those of an MLP: input, E, then F, E for each pair, classes.

    Raises ``ValueError`` where the pairs are not alike.
    """

    widths: tuple[int, ...] = (64, 128, *(32, 128) * 8, 10)
    name: ClassVar[str] = "stacked_mlp"

    def __post_init__(self) -> None:
        _, e, *pairs, _ = self.widths
        if not pairs or len(pairs) % 2 or set(pairs[1::2]) != {e} or len(set(pairs[::2])) != 1:
            raise ValueError(f"widths {self.widths}: between input and classes expected E, then F, E for each pair")

    @property
    def depth(self) -> int:
        """L: a block is a pair."""
        return len(self.widths) // 2 - 1

    @property
    def axes(self) -> dict[str, Any]:
        """The stacked parameter tree, with logical axes at its leaves."""
        return {
            "input": {"kernel": ("input", "embed"), "bias": ("embed",)},
            "up": {"kernel": ("layers", "embed", "mlp"), "bias": ("layers", "mlp")},
            "down": {"kernel": ("layers", "mlp", "embed"), "bias": ("layers", "embed")},
            "head": {"kernel": ("embed", "classes"), "bias": ("classes",)},
        }

    @property
    def shapes(self) -> dict[str, Any]:
        """The stacked parameter tree, with shapes at its leaves."""
        d, e, f, *_, c = self.widths
        sizes = {"input": d, "embed": e, "mlp": f, "classes": c, "layers": self.depth}
        return {
            layer: {name: tuple(sizes[axis] for axis in axes) for name, axes in leaf.items()}
            for layer, leaf in self.axes.items()
        }

    def truth(self, optimizer: Optimizer) -> MLPTruth:
        """The truth of this network."""
        return MLPTruth(self.widths, self.criterion, optimizer, SEED)

    def init(self, key: jax.Array) -> dict[str, Any]:
        """Float32 parameters: LeCun-uniform kernels, each layer's own, and zero biases."""
        return {
            name: {
                "kernel": lecun_uniform(batch_axis=range(len(layer["kernel"]) - 2))(key, layer["kernel"]),
                "bias": jnp.zeros(layer["bias"], jnp.float32),
            }
            for key, (name, layer) in zip(jax.random.split(key, len(self.shapes)), self.shapes.items(), strict=True)
        }

    def apply(self, parameters: Mapping[str, Any], x_BxD: jax.Array, layout: Layout) -> jax.Array:
        """Logits (B, C)."""
        return self.leave(parameters, self.through(parameters, self.enter(parameters, x_BxD, layout), layout), layout)

    def enter(self, parameters: Mapping[str, Any], x_BxD: jax.Array, layout: Layout) -> jax.Array:
        """The input layer: the first pair's input (B, E)."""
        return x_BxD @ parameters["input"]["kernel"] + parameters["input"]["bias"]

    def through(self, parameters: Mapping[str, Any], x_BxE: jax.Array, layout: Layout) -> jax.Array:
        """As many pairs as the parameters hold, one after the other (B, E)."""

        def pair(x_BxE: jax.Array, layers: tuple[Any, Any]) -> tuple[jax.Array, None]:
            up, down = layers
            h_BxE = layout.enter(jax.nn.relu(x_BxE), "mlp")
            z_BxF = layout.product("be,ef->bf", h_BxE, up["kernel"], "embed", ("mlp",)) + up["bias"]
            y_BxE = layout.product("bf,fe->be", jax.nn.relu(z_BxF), down["kernel"], "mlp", ("embed",))
            return y_BxE + down["bias"], None

        return jax.lax.scan(pair, x_BxE, (parameters["up"], parameters["down"]))[0]

    def leave(self, parameters: Mapping[str, Any], x_BxE: jax.Array, layout: Layout) -> jax.Array:
        """The head: logits (B, C) of the last pair's output."""
        return jax.nn.relu(x_BxE) @ parameters["head"]["kernel"] + parameters["head"]["bias"]

    def stack(self, parameters: Mapping[str, Any], order: Sequence[int]) -> dict[str, Any]:
        """The tree at rest of canonical host parameters; row i of a stack is pair ``order[i]``."""
        layers = {
            "up": [f"dense_{2 * pair + 1}" for pair in order],
            "down": [f"dense_{2 * pair + 2}" for pair in order],
        }
        stacked = {
            part: {name: np.stack([parameters[layer][name] for layer in names]) for name in ("kernel", "bias")}
            for part, names in layers.items()
        }
        return {"input": parameters["dense_0"], **stacked, "head": parameters[f"dense_{2 * self.depth + 1}"]}

    def unstack(self, parameters: Mapping[str, Any], order: Sequence[int]) -> dict[str, Any]:
        """The canonical tree of a tree at rest."""
        tree = {"dense_0": parameters["input"]}
        for pair in range(self.depth):
            row = order.index(pair)
            tree[f"dense_{2 * pair + 1}"] = {name: leaf[row] for name, leaf in parameters["up"].items()}
            tree[f"dense_{2 * pair + 2}"] = {name: leaf[row] for name, leaf in parameters["down"].items()}
        return tree | {f"dense_{2 * self.depth + 1}": parameters["head"]}
