"""The stacked MLP of Flax NNX modules: what a pipeline's stage runs is ``nnx.Linear``, two of which are a pair."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
from flax import nnx

from reference_impl.models.layout import Layout
from reference_impl.models.merged import Merged, draw, draw_stack
from reference_impl.models.stacked_mlp import StackedMLP


class Pair(nnx.Module):
    """Two layers, E→F and F→E, each behind a ReLU."""

    def __init__(self, embed: int, mlp: int, *, rngs: nnx.Rngs) -> None:
        self.up, self.down = linear(embed, mlp, rngs), linear(mlp, embed, rngs)

    def __call__(self, x_BxE: jax.Array) -> jax.Array:
        """The next pair's input (B, E)."""
        return self.down(nnx.relu(self.up(nnx.relu(x_BxE))))


@dataclass(frozen=True)
class NnxStackedMLP(StackedMLP, Merged):
    """Sizes as of a `StackedMLP`. For stages that hold their layers whole: the modules know no layout."""

    @property
    def makers(self) -> dict[str, Callable[[nnx.Rngs], Any]]:
        """The input layer, a pair, and the head."""
        d, e, f, *_, c = self.widths
        return {
            "input": lambda rngs: linear(d, e, rngs),
            "pair": lambda rngs: Pair(e, f, rngs=rngs),
            "head": lambda rngs: linear(e, c, rngs),
        }

    def init(self, key: jax.Array) -> dict[str, Any]:
        """Float32 parameters: LeCun-uniform kernels, each layer's own, and zero biases."""
        makers, rngs = self.makers, nnx.Rngs(key)
        pairs = draw_stack(makers["pair"], rngs, self.depth)
        return {name: draw(makers[name], rngs) for name in ("input", "head")} | pairs

    def enter(self, parameters: Mapping[str, Any], x_BxD: jax.Array, layout: Layout) -> jax.Array:
        """The input layer: the first pair's input (B, E)."""
        return self.module("input", parameters["input"])(x_BxD)  # type: ignore[no-any-return]

    def through(self, parameters: Mapping[str, Any], x_BxE: jax.Array, layout: Layout) -> jax.Array:
        """As many pairs as the parameters hold, one after the other (B, E)."""
        stacked = {name: parameters[name] for name in ("up", "down")}
        return jax.lax.scan(lambda x_BxE, pair: (self.module("pair", pair)(x_BxE), None), x_BxE, stacked)[0]

    def leave(self, parameters: Mapping[str, Any], x_BxE: jax.Array, layout: Layout) -> jax.Array:
        """The head: logits (B, C) of the last pair's output."""
        return self.module("head", parameters["head"])(nnx.relu(x_BxE))  # type: ignore[no-any-return]


def linear(inputs: int, outputs: int, rngs: nnx.Rngs) -> nnx.Linear:
    """A layer of LeCun-uniform kernels."""
    return nnx.Linear(inputs, outputs, kernel_init=nnx.initializers.lecun_uniform(), rngs=rngs)
