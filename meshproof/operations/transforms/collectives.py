"""Collectives over a named axis, and what they mean: plain operations on arrays with a dimension of devices in front.

Where ``check_vma`` is on, an array that is the same on every device is one array: its first dimension is 1, and
broadcasting makes copies of it, whose gradients are added. Where it is off, every device has its own copy of
everything: a gradient is that of the sum of all devices' results by a device's own copy. Both are the documented
meaning of ``jax.shard_map``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jax import lax

from meshproof.operations.transforms import Axis


@dataclass(frozen=True)
class Named:
    """JAX's collectives over a mesh axis of that name and size; each is one expression, which a reproducer repeats."""

    axis: Axis
    size: int
    named: bool = True

    def psum(self, x: Any) -> Any:
        """The sum over the devices."""
        return lax.psum(x, self.axis)

    def all_gather(self, x: Any, dimension: int) -> Any:
        """The shards of all devices, one after the other along a dimension."""
        return lax.all_gather(x, self.axis, axis=x.ndim + dimension, tiled=True)

    def psum_scatter(self, x: Any, dimension: int) -> Any:
        """The device's part of the sum."""
        return lax.psum_scatter(x, self.axis, scatter_dimension=x.ndim + dimension, tiled=True)

    def ppermute(self, x: Any) -> Any:
        """What the device before this one has."""
        return lax.ppermute(x, self.axis, [(place, (place + 1) % self.size) for place in range(self.size)])

    def all_to_all(self, x: Any, split: int, concat: int) -> Any:
        """A part to each device."""
        return lax.all_to_all(x, self.axis, x.ndim + split, x.ndim + concat, tiled=True)

    def mine(self, x: Any, dimension: int) -> Any:
        """The device's part."""
        return lax.dynamic_slice_in_dim(
            x,
            lax.axis_index(self.axis) * (x.shape[dimension] // self.size),
            x.shape[dimension] // self.size,
            x.ndim + dimension,
        )

    def pmean(self, x: Any) -> Any:
        """The mean over the devices."""
        return lax.pmean(x, self.axis)

    def place(self, x: Any) -> Any:
        """The device's number."""
        return lax.axis_index(self.axis).astype(x.dtype)

    def shifted(self, x: Any) -> Any:
        """What the device before this one has, or zeros."""
        return lax.ppermute(x, self.axis, [(place, place + 1) for place in range(self.size - 1)])

    def stacked(self, x: Any) -> Any:
        """The arrays of all devices."""
        return lax.all_gather(x, self.axis, axis=x.ndim - 2)

    def own_sum(self, x: Any) -> Any:
        """The sum of what is for this device."""
        return lax.psum_scatter(x, self.axis, scatter_dimension=x.ndim - 3)

    def dealt(self, x: Any) -> Any:
        """What is for this device."""
        return lax.all_to_all(x, self.axis, x.ndim - 3, x.ndim - 1)


@dataclass(frozen=True)
class Devices:
    """The same on the first dimension of arrays, of that size; 1 for what is one array, if ``shares`` (check_vma)."""

    size: int
    shares: bool
    named: bool = False

    def each(self, x: Any) -> Any:
        """A copy for every device."""
        return jnp.broadcast_to(x, (self.size, *x.shape[1:]))

    def psum(self, x: Any) -> Any:
        """One array, or a copy for each."""
        total = self.each(x).sum(0, keepdims=True)
        return total if self.shares else self.each(total)

    def all_gather(self, x: Any, dimension: int) -> Any:
        """A copy for each, since JAX takes it for different ones."""
        return self.each(self.joined(self.each(x), dimension)[None])

    def psum_scatter(self, x: Any, dimension: int) -> Any:
        """Parts of the sum."""
        return self.parted(self.each(x).sum(0), dimension)

    def ppermute(self, x: Any) -> Any:
        """Devices, shifted by one."""
        return jnp.roll(self.each(x), 1, 0)

    def all_to_all(self, x: Any, split: int, concat: int) -> Any:
        """Part i of device j becomes part j of device i."""
        return self.joined(jnp.moveaxis(self.parted(self.each(x), split), 1, 0), concat)

    def mine(self, x: Any, dimension: int) -> Any:
        """Each device's part of its copy."""
        return jnp.einsum("pp...->p...", self.parted(self.each(x), dimension))

    def pmean(self, x: Any) -> Any:
        """A sum over their number."""
        return self.psum(x) / self.size

    def place(self, x: Any) -> Any:
        """Each device's own."""
        return jnp.arange(self.size, dtype=x.dtype).reshape(-1, *[1] * (x.ndim - 1))

    def shifted(self, x: Any) -> Any:
        """Devices, shifted by one, without the last."""
        return jnp.concatenate([jnp.zeros_like(x[:1]), self.each(x)[:-1]])

    def stacked(self, x: Any) -> Any:
        """A copy for each."""
        return self.each(jnp.moveaxis(self.each(x), 0, -3)[None])

    def own_sum(self, x: Any) -> Any:
        """Of the sum to each device its own."""
        return jnp.moveaxis(self.each(x).sum(0), -3, 0)

    def dealt(self, x: Any) -> Any:
        """Device and receiver change places."""
        return jnp.moveaxis(jnp.moveaxis(self.each(x), -3, 0), 1, -1)

    def parted(self, x: Any, dimension: int) -> Any:
        """The parts of an array along a dimension, in a new one in front."""
        place = x.ndim + dimension
        sizes = (self.size, x.shape[place] // self.size)
        return jnp.moveaxis(x.reshape(*x.shape[:place], *sizes, *x.shape[place + 1 :]), place, 0)

    def joined(self, parts: Any, dimension: int) -> Any:
        """The array whose parts these are."""
        place = parts.ndim - 1 + dimension
        moved = jnp.moveaxis(parts, 0, place)
        return moved.reshape(*moved.shape[:place], -1, *moved.shape[place + 2 :])

    def scattered(self, whole: Any, split: int | None) -> Any:
        """What the devices hold of a whole array."""
        if split is not None:
            return self.parted(whole, split - 2)
        return whole[None] if self.shares else self.each(whole[None])

    def gathered(self, held: Any, split: int | None) -> Any:
        """The whole array that the devices hold. Copies that should be equal are averaged: each has its share in it."""
        return held.mean(0) if split is None else self.joined(self.each(held), split - 2)
