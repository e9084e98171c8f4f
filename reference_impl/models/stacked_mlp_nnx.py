"""The stacked MLP of Flax NNX modules: what a pipeline's stage runs is ``nnx.Linear``, merged with the stage's layers.

A module stands for one pair of layers. ``nnx.vmap`` makes all pairs, stacked; a scan takes one after the other out of
the stage's stack. The state is their arrays: a schedule differentiates by arrays, and no object goes from tick to tick.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
from flax import nnx

from reference_impl.models.layout import Layout
from reference_impl.models.stacked_mlp import StackedMLP


class Pair(nnx.Module):
    """Two layers, E→F and F→E, each behind a ReLU."""

    def __init__(self, embed: int, mlp: int, *, rngs: nnx.Rngs) -> None:
        self.up, self.down = linear(embed, mlp, rngs), linear(mlp, embed, rngs)

    def __call__(self, x_BxE: jax.Array) -> jax.Array:
        """The next pair's input (B, E)."""
        return self.down(nnx.relu(self.up(nnx.relu(x_BxE))))


@dataclass(frozen=True)
class NnxStackedMLP(StackedMLP):
    """Sizes as of a `StackedMLP`. For stages that hold their layers whole: the modules know no layout."""

    def init(self, key: jax.Array) -> dict[str, Any]:
        """Float32 parameters: LeCun-uniform kernels, each layer's own, and zero biases."""
        d, e, f, *_, c = self.widths
        rngs = nnx.Rngs(key)
        pairs = nnx.split_rngs(splits=self.pairs)(nnx.vmap(lambda rngs: Pair(e, f, rngs=rngs)))(rngs)
        modules = {"input": linear(d, e, rngs), "up": pairs.up, "down": pairs.down, "head": linear(e, c, rngs)}
        return {name: nnx.to_pure_dict(nnx.state(module, nnx.Param)) for name, module in modules.items()}

    @cached_property
    def modules(self) -> dict[str, Any]:
        """The graph and the abstract state of the input layer, of a pair, and of the head."""
        d, e, f, *_, c = self.widths
        made = {
            "input": lambda: linear(d, e, nnx.Rngs(0)),
            "pair": lambda: Pair(e, f, rngs=nnx.Rngs(0)),
            "head": lambda: linear(e, c, nnx.Rngs(0)),
        }
        return {name: nnx.split(nnx.eval_shape(make)) for name, make in made.items()}

    def call(self, name: str, parameters: Any, x: jax.Array) -> jax.Array:
        """One of them with these parameters."""
        graph, abstract = self.modules[name]
        state = jax.tree.map(lambda leaf: leaf, abstract)
        nnx.replace_by_pure_dict(state, parameters)
        return nnx.merge(graph, state)(x)  # type: ignore[no-any-return]

    def enter(self, parameters: Mapping[str, Any], x_BxD: jax.Array) -> jax.Array:
        """The input layer: the first pair's input (B, E)."""
        return self.call("input", parameters["input"], x_BxD)

    def through(self, parameters: Mapping[str, Any], x_BxE: jax.Array, layout: Layout) -> jax.Array:
        """As many pairs as the parameters hold, one after the other (B, E)."""
        stacked = {name: parameters[name] for name in ("up", "down")}
        return jax.lax.scan(lambda x_BxE, layers: (self.call("pair", layers, x_BxE), None), x_BxE, stacked)[0]

    def leave(self, parameters: Mapping[str, Any], x_BxE: jax.Array) -> jax.Array:
        """The head: logits (B, C) of the last pair's output."""
        return self.call("head", parameters["head"], nnx.relu(x_BxE))


def linear(inputs: int, outputs: int, rngs: nnx.Rngs) -> nnx.Linear:
    """A layer of LeCun-uniform kernels."""
    return nnx.Linear(inputs, outputs, kernel_init=nnx.initializers.lecun_uniform(), rngs=rngs)
