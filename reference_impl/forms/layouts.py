"""The layout of an annotated strategy: a compute mapping, applied wherever a model calls its layout."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
from jax.lax import with_sharding_constraint
from jax.sharding import PartitionSpec

from meshproof.contract import Tree
from reference_impl.mapping import Axes, Mapping
from reference_impl.models.layout import Layout


class Annotated(Layout):
    """Constrains activations (batch, *axes) or (batch, length, *axes) where they enter and leave a region.

    ``rest`` is the mapping of parameters at rest; without it `hold` holds nothing.
    """

    def __init__(self, compute: Mapping, rest: Mapping | None = None) -> None:
        self.compute, self.rest = compute, rest

    def reshard(self, parameters: Tree, axes: Tree) -> Any:
        """Parameters, constrained to the compute mapping."""
        return with_sharding_constraint(parameters, self.compute.specs(axes))

    def hold(self, parameters: Tree, axes: Tree) -> Any:
        """Parameters, constrained to the mapping at rest."""
        return jax.tree.map(self.place, parameters, self.rest.specs(axes)) if self.rest else parameters

    def stream(self, h_BxTxD: jax.Array) -> jax.Array:
        """Constrained to the layout of ``sequence``."""
        return self.place(h_BxTxD, self.spec(h_BxTxD.ndim, "sequence", ("embed",)))

    def enter(self, x: jax.Array, into: str) -> jax.Array:
        """Replicated where the kernel's columns are split; the gradient goes back to the layout of ``sequence``."""
        if x.ndim < 3 or not self.compute.of(into):
            return x
        whole, stream = (self.spec(x.ndim, length, ("embed",)) for length in ("length", "sequence"))
        return laid_out(x, whole, stream)

    def leave(self, y: jax.Array, over: str, axes: Axes) -> jax.Array:
        """A product, constrained to the layout of `spec_of_product`."""
        return self.place(y, self.spec_of_product(y.ndim, axes))

    def products(
        self, subscripts: str, x: jax.Array, kernels: Sequence[jax.Array], over: str, axes: Axes
    ) -> list[jax.Array]:
        """Several products of one activation, whose gradient is reduced once for all of them."""
        return [self.leave(y, over, axes) for y in fan_out(subscripts, x, tuple(kernels))]

    def attend(self, q_BxTxHxK: jax.Array, k_BxSxHxK: jax.Array, v_BxSxHxK: jax.Array) -> jax.Array:
        """Each device computes its own heads, over the whole sequence."""
        spec = self.spec(q_BxTxHxK.ndim, "length", ("heads", "head_dim"))
        own = (self.place(x, spec) for x in (q_BxTxHxK, k_BxSxHxK, v_BxSxHxK))
        return self.place(super().attend(*own), spec)

    def dispatch(self, x_GxExPxM: jax.Array) -> jax.Array:
        """Sharded by groups, then by experts: the compiler inserts an all-to-all between the two."""
        return self.at_experts(self.at_groups(x_GxExPxM))

    def combine(self, y_GxExPxM: jax.Array) -> jax.Array:
        """Sharded by experts, then by groups: the all-to-all back."""
        return self.at_groups(self.at_experts(y_GxExPxM))

    def at_groups(self, x_GxExPxM: jax.Array) -> jax.Array:
        """Each device has its own groups, and in them the places of all experts."""
        return self.place(x_GxExPxM, PartitionSpec(self.compute.of("batch")))

    def at_experts(self, x_GxExPxM: jax.Array) -> jax.Array:
        """Each device has its own experts, and their places in the groups of all devices that hold other experts."""
        experts = self.compute.of("experts")
        others = tuple(axis for axis in self.compute.of("batch") if axis not in experts)
        return self.place(x_GxExPxM, PartitionSpec(others, experts))

    def share(self, w: jax.Array, axes: Axes) -> jax.Array:
        """One copy for each part of the tokens: the gradients of all uses are added in it and then reduced once."""
        copies = jnp.broadcast_to(w, (*self.parts, *w.shape))
        return self.place(copies, self.compute.spec(("batch", "sequence", *axes)))

    def use(self, function: Callable[[jax.Array, jax.Array], jax.Array], w: jax.Array, x_BxT: jax.Array) -> jax.Array:
        """Each part of the tokens uses its own copy."""
        examples, lengths = self.parts
        parts = x_BxT.reshape(examples, -1, lengths, x_BxT.shape[1] // lengths, *x_BxT.shape[2:])
        y = jax.vmap(jax.vmap(function, (0, 1), 1))(w, parts)
        return y.reshape(*x_BxT.shape[:2], *y.shape[4:])

    @property
    def parts(self) -> tuple[int, int]:
        """Into how many parts the examples are split, and their length."""
        sizes = jax.sharding.get_abstract_mesh().shape
        examples, lengths = (prod(sizes[axis] for axis in self.compute.of(axes)) for axes in ("batch", "sequence"))
        return examples, lengths

    def spec_of_product(self, rank: int, axes: Axes) -> PartitionSpec:
        """The layout of ``sequence`` between regions, of ``length`` within one."""
        return self.spec(rank, "length" if self.compute.split(axes) else "sequence", axes)

    def spec(self, rank: int, length: str, axes: Axes) -> PartitionSpec:
        """The layout of (batch, *axes) or (batch, length, *axes)."""
        return self.compute.spec((*("batch", length)[: rank - len(axes)], *axes))

    def place(self, x: jax.Array, spec: PartitionSpec) -> jax.Array:
        """``x`` constrained."""
        return with_sharding_constraint(x, spec)


@partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def laid_out(x: jax.Array, spec: PartitionSpec, gradient_spec: PartitionSpec) -> jax.Array:
    """``x`` constrained to one spec, and its gradient to another."""
    return with_sharding_constraint(x, spec)


laid_out.defvjp(
    lambda x, spec, gradient_spec: (laid_out(x, spec, gradient_spec), None),
    lambda spec, gradient_spec, _, gradient: (with_sharding_constraint(gradient, gradient_spec),),
)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def fan_out(subscripts: str, x: jax.Array, kernels: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
    """The einsum of ``x`` with each kernel; the gradient with respect to ``x`` is one einsum over all kernels.

    As a sum of several einsums it would be reduced several times: not every compiler adds before it reduces.
    """
    return tuple(jnp.einsum(subscripts, x, w) for w in kernels)


def fan_in(
    subscripts: str, operands: tuple[jax.Array, tuple[jax.Array, ...]], gradients: tuple[jax.Array, ...]
) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    """The gradients of `fan_out`."""
    x, kernels = operands
    of_x, of_w, of_y = re.split(",|->", subscripts)
    into_x = jnp.einsum(f"z{of_y},z{of_w}->{of_x}", jnp.stack(gradients), jnp.stack(kernels))
    return into_x, tuple(jnp.einsum(f"{of_x},{of_y}->{of_w}", x, gradient) for gradient in gradients)


fan_out.defvjp(lambda subscripts, x, kernels: (fan_out(subscripts, x, kernels), (x, kernels)), fan_in)
