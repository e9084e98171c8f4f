"""Where a model meets a strategy: the points at which a strategy may reshard activations or insert collectives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from reference_impl.mapping import Axes
from reference_impl.models.attention import attention

Block = Callable[[Mapping[str, Any], jax.Array], jax.Array]
"""A block of a model: from its parameters and its input to its output."""


class Layout:
    """What a model calls at these points. As it stands the model is whole on its device, and nothing changes.

    A strategy overrides what differs.
    """

    def reshard(self, parameters: Mapping[str, Any], axes: Mapping[str, Any]) -> Any:
        """Parameters with these logical axes, from their layout at rest to the one that they are computed with."""
        return parameters

    def hold(self, parameters: Mapping[str, Any], axes: Mapping[str, Any]) -> Any:
        """Parameters with these logical axes, kept in their layout at rest."""
        return parameters

    def block(self, run: Block, parameters: Mapping[str, Any], axes: Mapping[str, Any], x: jax.Array) -> jax.Array:
        """``run(parameters, x)`` of one block of a model, whose parameters have these logical axes."""
        return run(parameters, x)

    def enter(self, x: jax.Array, into: str) -> jax.Array:
        """The input of products with kernels whose columns have the logical axis ``into``."""
        return x

    def leave(self, y: jax.Array, over: str, axes: Axes) -> jax.Array:
        """A product that summed over the logical axis ``over``; its last dimensions have the logical ``axes``."""
        return y

    def stream(self, h_BxTxD: jax.Array) -> jax.Array:
        """The residual stream, where it starts."""
        return h_BxTxD

    def attend(self, q_BxTxHxK: jax.Array, k_BxSxHxK: jax.Array, v_BxSxHxK: jax.Array) -> jax.Array:
        """Causal attention over the whole sequence."""
        return attention(q_BxTxHxK, k_BxSxHxK, v_BxSxHxK)

    def dispatch(self, x_GxExPxM: jax.Array) -> jax.Array:
        """The tokens of groups G at the places P of experts E: from the group's device to the expert's."""
        return x_GxExPxM

    def combine(self, y_GxExPxM: jax.Array) -> jax.Array:
        """The experts' outputs: back to the group's device."""
        return y_GxExPxM

    def product(self, subscripts: str, x: jax.Array, w: jax.Array, over: str, axes: Axes) -> jax.Array:
        """The einsum of an activation with a kernel, as it leaves."""
        return self.leave(jnp.einsum(subscripts, x, w), over, axes)

    def products(
        self, subscripts: str, x: jax.Array, kernels: Sequence[jax.Array], over: str, axes: Axes
    ) -> list[jax.Array]:
        """The same `product` with several kernels."""
        return [self.product(subscripts, x, w, over, axes) for w in kernels]

    def share(self, w: jax.Array, axes: Axes) -> jax.Array:
        """A parameter that several calls of `use` share."""
        return w

    def use(self, function: Callable[[jax.Array, jax.Array], jax.Array], w: jax.Array, x: jax.Array) -> jax.Array:
        """``function(w, x)`` of a shared parameter and of a batch of examples."""
        return function(w, x)

    def look_up(self, token_VxD: jax.Array, x_BxT: jax.Array) -> jax.Array:
        """The tokens' embeddings (B, T, D), of a table that is shared with `logits`."""
        return self.use(look_up, token_VxD, x_BxT)

    def logits(self, token_VxD: jax.Array, h_BxTxD: jax.Array) -> jax.Array:
        """The tied head: logits (B, T, V)."""
        return self.use(tied_head, token_VxD, h_BxTxD)


def look_up(token_VxD: jax.Array, x_BxT: jax.Array) -> jax.Array:
    """The tokens' embeddings (B, T, D)."""
    return token_VxD[x_BxT]


def tied_head(token_VxD: jax.Array, h_BxTxD: jax.Array) -> jax.Array:
    """The tied head: logits (B, T, V)."""
    return jnp.einsum("btd,vd->btv", h_BxTxD, token_VxD)
