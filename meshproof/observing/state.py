"""The arrays of a state, whatever its tree: where they lie, whether they moved, and whether their copies are one."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterable, Sequence
from math import prod
from typing import Any, TypeVar

import jax
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from meshproof.contract import Leaves, leaves, spec_axes
from meshproof.measures.layout import Array, Index, LeafLayout, observe_layout, own_memory, parts, ranges
from meshproof.measures.numerics import bitwise, finite
from meshproof.measures.verdicts import LeafRecord, Verdict
from meshproof.observing.gathering import differing_copies, gathered, on_host, whole_layout

T = TypeVar("T")
WORD = re.compile(r"\w+")
WEAK = " of a weak type"


def array_leaves(state: Any) -> list[tuple[str, Any]]:
    """Every `Array` of a state, canonical or not, by JAX's key path; of a random key its bits."""
    flat, _ = jax.tree_util.tree_flatten_with_path(state)
    return [(jax.tree_util.keystr(path), bits(leaf)) for path, leaf in flat if isinstance(leaf, Array)]


def bits(array: Any) -> Any:
    """What can be looked at of an array: of random keys their data, uint32."""
    if not (isinstance(array, Array) and jax.numpy.issubdtype(array.dtype, jax.dtypes.prng_key)):
        return array
    if isinstance(array, jax.Array):
        return jax.random.key_data(array)
    data = jax.eval_shape(jax.random.key_data, jax.ShapeDtypeStruct(array.shape, array.dtype))
    return jax.ShapeDtypeStruct(data.shape, data.dtype, sharding=array.sharding)


def is_gone(array: Any) -> bool:
    """Whether an array was donated."""
    return isinstance(array, jax.Array) and bool(array.is_deleted())


def is_same(before: jax.Array | None, after: jax.Array) -> bool:
    """Whether an array is the one that was there, or has its values: some trees make their leaves when asked."""
    return before is after or (before is not None and np.array_equal(on_host(before), on_host(after)))


def is_variable(node: Any) -> bool:
    """Whether this is a variable of NNX: asked of its type, for a node of a trainer's own may answer for any name."""
    return hasattr(type(node), "get_metadata")


def annotated(state: Any, mesh: Mesh) -> tuple[LeafLayout, ...]:
    """Every array that Flax's metadata says is split over mesh axes, with that as its declared layout.

    Under any key that begins as a key for it has in any version of NNX, heeded or not; by mesh axes, or by logical
    names that the variable's own ``sharding_rules`` map to them.
    """
    flat, _ = jax.tree_util.tree_flatten_with_path(state, is_leaf=is_variable)
    found: dict[str, tuple[jax.Array, PartitionSpec]] = {}
    for path, variable in flat:
        metadata = dict(variable.get_metadata()) if is_variable(variable) else {}
        rules = dict(metadata.pop("sharding_rules", None) or ())
        for key, value in metadata.items():
            spec = getattr(value, "spec", value)
            if isinstance(value, tuple):
                spec = PartitionSpec(*(rules.get(name, name) for name in value))
            if key.startswith(("sharding", "out_sharding")) and isinstance(spec, PartitionSpec):
                axes = set(spec_axes(spec))
                if axes and axes <= set(mesh.axis_names):
                    [array] = jax.tree.leaves(variable)
                    found[f"{jax.tree_util.keystr(path)} by {key}"] = array, spec
    layout = observe_layout({name: array for name, (array, _) in found.items()}, mesh, lambda name: found[name][1])
    return whole_layout(layout)


def layout_of(state: Any) -> dict[str, tuple[Any, int]]:
    """Each array's sharding and rank, taken before a step donates it."""
    return {path: (array.sharding, array.ndim) for path, array in array_leaves(state)}


def moved(before: dict[str, tuple[Any, int]], after: dict[str, tuple[Any, int]]) -> tuple[str, ...]:
    """Leaves whose sharding is not equivalent to what it was, with both; or that are new or gone."""
    return tuple(
        f"{path}: expected {_placed(before.get(path))}, is {_placed(after.get(path))}"
        for path in before | after
        if path not in before or path not in after or not after[path][0].is_equivalent_to(*before[path])
    )


def _placed(held: tuple[Any, int] | None) -> str:
    if held is None:
        return "absent among the arrays on devices"
    sharding, _ = held
    own = getattr(sharding, "mesh", None)
    devices = sorted(each.id for each in sharding.device_set) if own is None else [each.id for each in own.devices.flat]
    default = own_memory(next(iter(sharding.device_set)))
    memory = "" if sharding.memory_kind in (None, default) else f" in {sharding.memory_kind} memory"
    return f"{getattr(sharding, 'spec', type(sharding).__name__)}{memory} on devices {reprlib.repr(devices)}"


def types_of(state: Any) -> dict[str, str]:
    """Each array's dtype and shape, in words; a weak type is that of a number from Python, and compiles otherwise."""
    return {
        path: f"{array.dtype}{list(array.shape)}{WEAK if getattr(array, 'weak_type', False) else ''}"
        for path, array in array_leaves(state)
    }


def kinds_of(state: Any) -> dict[str, str]:
    """As `types_of`, without weak types: no format of checkpoints keeps them, and they are no part of a value."""
    return {path: kind.removesuffix(WEAK) for path, kind in types_of(state).items()}


def values_of(state: Any, model: Sequence[str]) -> Leaves:
    """Every number of a state by JAX's key path, of JAX's arrays or not, in model order: copies, as `host` makes."""
    flat, _ = jax.tree_util.tree_flatten_with_path(state)
    held = [
        (jax.tree_util.keystr(path), on_host(bits(leaf)))
        for path, leaf in flat
        if isinstance(leaf, jax.Array | np.ndarray | np.generic | int | float)
    ]
    return dict(in_model_order(held, model))


def retyped(before: dict[str, str], after: dict[str, str]) -> tuple[str, ...]:
    """Leaves of another dtype or shape than before, with both."""
    return tuple(
        f"{path}: expected {kind}, is {after[path]}" for path, kind in before.items() if after.get(path, kind) != kind
    )


def replicas(held: list[tuple[str, jax.Array]]) -> Verdict:
    """Whether devices that hold the same part of an array hold the same bits; of each array the worst pair of them."""
    records, here = [], {}
    for place, (path, array) in enumerate(held):
        first: dict[Index, Any] = {}
        records.append(_replicas(path, array, first))
        here[place] = path, {index: np.asarray(shard.data) for index, shard in first.items()}
    across = differing_copies(here)
    worst = (
        max(record, across.get(place, record), key=lambda record: record.error) for place, record in enumerate(records)
    )
    return Verdict("copies on several devices", tuple(worst))


def _replicas(path: str, array: jax.Array, first: dict[Index, Any]) -> LeafRecord:
    """The worst pair of this process's; ``first`` becomes the first shard of each part."""
    pairs: list[tuple[Any, Any]] = [
        (first.setdefault(ranges(s.index, array.shape), s), s) for s in array.addressable_shards
    ]
    records = (
        bitwise(
            {path: np.asarray(one.data)},
            {path: np.asarray(other.data)},
            names=(f"device {one.device.id}", f"device {other.device.id}"),
        ).records[0]
        for one, other in pairs
    )
    return max(records, key=lambda record: record.error)


def in_model_order(held: Iterable[tuple[str, T]], model: Sequence[str]) -> list[tuple[str, T]]:
    """Leaves and their paths, in the order of the model's parameters whose paths theirs contain; others come last.

    JAX sorts the keys of a dict, so that what it returns lies in the order of the alphabet.
    """

    def place(leaf: tuple[str, T]) -> int:
        words = spelled(leaf[0])
        return next((at for at, path in enumerate(model) if spelled(path) in words), len(model))

    return sorted(held, key=place)


def spelled(path: str) -> str:
    """A path of either spelling, ``['a'].b`` or ``a/b``, as its words between slashes."""
    return f"/{'/'.join(WORD.findall(path))}/"


def displaced(placed: dict[str, jax.Array], batch: Leaves) -> tuple[str, ...]:
    """Shards of a placed batch that do not hold their own part of the host batch, in the dtype of the device."""
    here = [
        f"{path} on device {shard.device.id}"
        for path, array in placed.items()
        if path in batch
        for shard in array.addressable_shards
        if not np.array_equal(np.asarray(shard.data), batch[path].astype(array.dtype).reshape(array.shape)[shard.index])
    ]
    return tuple(sentence for each in gathered(here) for sentence in each)


def finite_state(held: list[tuple[str, jax.Array]], unreached: Leaves | None = None) -> Verdict:
    """Whether every value of these arrays is a finite number, or one of the infinities of the first state."""
    inexact = {path: array for path, array in held if jax.numpy.issubdtype(array.dtype, jax.numpy.inexact)}
    return finite({path: on_host(array) for path, array in inexact.items()}, "state", unreached)


def infinite(held: Iterable[tuple[str, Any]]) -> Leaves:
    """The arrays that have an infinity, as the best loss before the first."""
    arrays = ((path, on_host(array)) for path, array in held if jax.numpy.issubdtype(array.dtype, jax.numpy.inexact))
    return {path: array for path, array in arrays if np.isinf(array).any()}


def is_scalar(array: Array) -> bool:
    """Whether a device holds one element of it."""
    return prod(array.sharding.shard_shape(array.shape)) == 1


def bytes_per_device(arrays: list[Array]) -> int:
    """Bytes that these arrays take on the fullest device."""
    held: dict[jax.Device, int] = {}
    for array in arrays:
        for part in parts(array):
            held[part.device] = held.get(part.device, 0) + part.bytes
    return max(gathered(max(held.values(), default=0)))


def host(tree: Any) -> Leaves:
    """A canonical tree as host arrays by path: copies, for JAX takes a donated array of which a view is held for whole.

    What then computes with it crashes (jaxlib 0.10.2), or leaves devices that end no later program (0.12.0).
    """
    return {path: on_host(array) for path, array in leaves(tree)}
