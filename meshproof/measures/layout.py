"""How every array is sharded: the declared ``PartitionSpec`` beside the shards that are really on the devices.

Positions are those in ``mesh.devices.flat``. An index is a tuple of half-open ``(start, stop)`` ranges, one a
dimension, in elements of the global array.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple, TypeAlias

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from meshproof.contract import spec_axes

Index = tuple[tuple[int, int], ...]

Array: TypeAlias = jax.Array | jax.ShapeDtypeStruct
"""An array on devices; or what a program that was only compiled says of one: shape, dtype and sharding."""


ALIGNED = 128
"""Elements that a device's part of a padded vector may be a multiple of."""


class Held(NamedTuple):
    """The part of an array that a device holds."""

    device: jax.Device
    where: tuple[slice, ...]
    shape: tuple[int, ...]
    bytes: int


@dataclass(frozen=True)
class Shard:
    """What one device holds of an array."""

    position: int
    index: Index
    shape: tuple[int, ...]
    bytes: int


@dataclass(frozen=True)
class LeafLayout:
    """One array: its path, global shape, item size in bytes, and its shards in order of position.

    ``spec`` is what the array's sharding calls itself, with its memory kind and its devices if these are not the mesh's
    own. ``memory`` is that kind, where it is not the device's own. ``as_declared`` is JAX's verdict:
    ``is_equivalent_to`` the declared sharding. It is ``None`` if nothing is declared, and ``undeclared`` says why.
    """

    path: str
    shape: tuple[int, ...]
    itemsize: int
    spec: str
    shards: tuple[Shard, ...]
    declared: tuple[Any, ...] | None = None
    as_declared: bool | None = None
    undeclared: str = ""
    dtype: str = ""
    memory: str = ""

    @property
    def declared_spec(self) -> str:
        """What is declared, spelled as ``spec`` is."""
        return "nothing" if self.declared is None else str(PartitionSpec(*self.declared))

    @property
    def placed(self) -> str:
        """How it is placed, in a message: ``spec``, and whether every one of several devices holds all of it."""
        whole = len(self.shards) > 1 and all(shard.shape == self.shape for shard in self.shards)
        return f"{self.spec} (replicated)" if whole else self.spec

    @property
    def bytes_per_device(self) -> int:
        """Bytes on the fullest device."""
        held: dict[int, int] = {}
        for shard in self.shards:
            held[shard.position] = held.get(shard.position, 0) + shard.bytes
        return max(held.values(), default=0)


def observe_layout(
    leaves: Mapping[str, Array],
    mesh: Mesh,
    declared: Callable[[str], PartitionSpec] | None,
    memory: Callable[[str], str | None] = lambda path: None,
) -> tuple[LeafLayout, ...]:
    """The layout of every leaf by path, beside what ``declared(path)`` promises of it (``None``: nothing).

    Of a leaf whose ``memory(path)`` is promised any kind of memory is as declared here: SHD-11 judges that.
    """
    return tuple(_observe_leaf(path, array, mesh, declared, memory) for path, array in leaves.items())


def _observe_leaf(
    path: str,
    array: Array,
    mesh: Mesh,
    declared: Callable[[str], PartitionSpec] | None,
    memory: Callable[[str], str | None],
) -> LeafLayout:
    spec, as_declared, undeclared = None, None, "the contract declares no layout"
    if declared is not None:
        try:
            spec, undeclared = declared(path), ""
            kind = array.sharding.memory_kind if memory(path) else None
            as_declared = array.sharding.is_equivalent_to(NamedSharding(mesh, spec, memory_kind=kind), array.ndim)
        except (LookupError, ValueError) as error:
            undeclared = str(error.args[0])
    positions = {device: position for position, device in enumerate(mesh.devices.flat)}
    shards = sorted(
        (
            Shard(positions.get(part.device, -1), ranges(part.where, array.shape), part.shape, part.bytes)
            for part in parts(array)
        ),
        key=lambda shard: shard.position,
    )
    declared_tuple = None if spec is None else tuple(spec)
    found = _spelled(array.sharding, mesh)
    return LeafLayout(
        path,
        array.shape,
        array.dtype.itemsize,
        found,
        tuple(shards),
        declared_tuple,
        as_declared,
        undeclared,
        str(array.dtype),
        _own_memory(array.sharding, mesh),
    )


def parts(array: Array) -> Iterator[Held]:
    """What each device holds of an array, or would hold."""
    if isinstance(array, jax.Array):
        for shard in array.addressable_shards:
            yield Held(shard.device, shard.index, shard.data.shape, shard.data.nbytes)
    else:
        shape = array.sharding.shard_shape(array.shape)
        for device, index in array.sharding.devices_indices_map(array.shape).items():
            yield Held(device, index, shape, prod(shape) * array.dtype.itemsize)


def _spelled(sharding: Any, mesh: Mesh) -> str:
    """A sharding's spec, and what the spec does not say: another memory kind, another order of the devices."""
    name = str(getattr(sharding, "spec", type(sharding).__name__))
    if memory := _own_memory(sharding, mesh):
        name += f" in {memory} memory"
    own = [each.id for each in getattr(sharding, "mesh", mesh).devices.flat]
    if own != [each.id for each in mesh.devices.flat]:
        name += f" over devices {reprlib.repr(own)}"
    return name


def _own_memory(sharding: Any, mesh: Mesh) -> str:
    """A kind of memory that is not the device's own; else empty."""
    default = own_memory(mesh.devices.flat[0])
    return "" if sharding.memory_kind in (None, default) else str(sharding.memory_kind)


def own_memory(device: jax.Device) -> str:
    """The kind of memory that a device has for itself; ``device`` where only its compiler is here and does not say."""
    try:
        return str(device.default_memory().kind)
    except jax.errors.JaxRuntimeError:
        return "device"


def expected_shards(
    shape: tuple[int, ...], spec: tuple[Any, ...], mesh: Mapping[str, int]
) -> tuple[tuple[int, Index], ...]:
    """Which part of an array each position of a mesh must hold: a ``PartitionSpec``'s meaning, computed without JAX.

    ``spec`` has an axis name, a tuple of them (major first) or ``None`` per dimension; dimensions beyond it are
    whole. Raises ``ValueError`` if a dimension does not divide by its axes.
    """
    shards = []
    for position, coordinates in enumerate(np.ndindex(*mesh.values())):
        at = dict(zip(mesh, coordinates, strict=True))
        index = []
        for dimension, size in enumerate(shape):
            axes = spec_axes(spec[dimension : dimension + 1])
            count = prod(mesh[axis] for axis in axes)
            if size % count:
                raise ValueError(f"dimension {dimension} of {size} is not divisible by {'×'.join(axes)}={count}")
            nth = 0
            for axis in axes:
                nth = nth * mesh[axis] + at[axis]
            index.append((nth * size // count, (nth + 1) * size // count))
        shards.append((position, tuple(index)))
    return tuple(shards)


def mesh_axes(leaf: LeafLayout, mesh: Mapping[str, int]) -> list[list[str]] | None:
    """The mesh axes that each dimension is really split over, major first, axes of one device left out.

    Found in the shards, not in a ``PartitionSpec``. ``None`` if no ``PartitionSpec`` describes what they hold.
    """
    shards = {shard.position: shard.index for shard in leaf.shards}
    first = shards.get(0)
    if first is None:
        return None
    strides = {axis: prod(list(mesh.values())[i + 1 :]) for i, axis in enumerate(mesh) if mesh[axis] > 1}
    starts = {axis: [start for start, _ in shards.get(stride, first)] for axis, stride in strides.items()}
    found = [
        sorted((axis for axis in starts if starts[axis][dimension]), key=lambda axis: -starts[axis][dimension])
        for dimension in range(len(leaf.shape))
    ]
    try:
        described = dict(expected_shards(leaf.shape, tuple(map(tuple, found)), mesh))
    except ValueError:
        return None
    return found if described == shards else None


def holds_all(shape: tuple[int, ...], count: int, devices: int) -> bool:
    """Whether an array is a vector of so many elements, with what is padded so that ``devices`` share it equally."""
    return len(shape) == 1 and 0 < count <= shape[0] < count + devices * ALIGNED


def ranges(index: tuple[slice, ...], shape: tuple[int, ...]) -> Index:
    """Slices as ``(start, stop)``, with open ends closed by the shape."""
    return tuple(part.indices(size)[:2] for part, size in zip(index, shape, strict=True))
