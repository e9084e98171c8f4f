"""Where a model meets a strategy: the places at which an activation may change its layout."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from reference_impl.mapping import Axes


class Whole:
    """The layout of a model that lies whole on its device: nothing changes."""

    def enter(self, x: jax.Array, into: str) -> jax.Array:
        """The input of products with kernels whose columns lie along the logical axis ``into``."""
        return x

    def leave(self, y: jax.Array, over: str, axes: Axes) -> jax.Array:
        """A product that summed over the logical axis ``over``; its last dimensions lie along ``axes``."""
        return y

    def dispatch(self, x_GxExPxM: jax.Array) -> jax.Array:
        """The tokens of groups G at the places P of experts E: from where the group lies to where the expert does."""
        return x_GxExPxM

    def combine(self, y_GxExPxM: jax.Array) -> jax.Array:
        """What the experts made of them: back to where the group lies."""
        return y_GxExPxM

    def product(self, subscripts: str, x: jax.Array, w: jax.Array, over: str, axes: Axes) -> jax.Array:
        """The einsum of an activation with a kernel, as it leaves."""
        return self.leave(jnp.einsum(subscripts, x, w), over, axes)
