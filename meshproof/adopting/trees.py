"""States of any kind, by the paths of their arrays: what an adapter that `meshproof adopt` wrote is made of.

A path has the words of JAX's key path between slashes, as in ``opt_state/0/mu/hidden/kernel``: of dicts their keys, of
tuples and lists the number, of modules and dataclasses the field. An NNX variable's own ``value`` is left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jax.tree_util import DictKey

from meshproof.contract import leaves, nest
from meshproof.measures.layout import Array

_OWN = re.compile(r"/(?:value|raw_value)$")


def path_of(keys: tuple[Any, ...]) -> str:
    """The path of JAX's key path, in which a pytree of one's own may have keys of any kind."""
    words = (
        next((str(getattr(key, name)) for name in ("key", "name", "idx") if hasattr(key, name)), str(key))
        for key in keys
    )
    return _OWN.sub("", "/".join(words))


def arrays(state: Any) -> dict[str, Array]:
    """Every array of a state by its path, of an abstract state what stands for it."""
    flat, _ = jax.tree_util.tree_flatten_with_path(state)
    return {path_of(keys): leaf for keys, leaf in flat if isinstance(leaf, Array)}


def is_nested(tree: Any) -> bool:
    """Whether it is nested dicts alone, above its arrays."""
    flat, _ = jax.tree_util.tree_flatten_with_path(tree)
    return isinstance(tree, Mapping) and all(isinstance(key, DictKey) for keys, _ in flat for key in keys)


def subtree(state: Any, path: str, without: Sequence[str] = ()) -> Any:
    """What a state holds below a path, as nested dicts; of the path of an array that array.

    ``path`` may be empty: the whole state. ``without`` are glob patterns of paths below it that are left out. Raises
    ``LookupError`` where nothing is there.
    """
    found = arrays(state)
    if path in found:
        return found[path]
    prefix = f"{path}/" if path else ""
    below = {name.removeprefix(prefix): leaf for name, leaf in found.items() if name.startswith(prefix)}
    kept = {name: leaf for name, leaf in below.items() if not any(fnmatchcase(name, each) for each in without)}
    if not kept:
        nearest = ", ".join(get_close_matches(path, found, 3, 0.0)) or "none"
        raise LookupError(
            f"the state has no array below {path!r}; nearest of its {len(found)}: {nearest}. If the trainer has "
            "changed since `meshproof adopt` wrote this path, run it again"
        )
    return nest(kept)


def loaded(state: Any, path: str, values: Mapping[str, Any]) -> Any:
    """A state with these values below ``path``, each where the one lay that it replaces; of a stacked one (devices, …)
    on each device.

    Other floating-point arrays take the values' dtype, so that a state of float64 values is one of float64.
    """
    given = {f"{path}/{name}" if path else name: value for name, value in leaves(values)}
    width = next((jnp.asarray(value).dtype for value in given.values()), jnp.dtype("float32"))

    def replace(keys: tuple[Any, ...], leaf: Any) -> Any:
        if not isinstance(leaf, jax.Array):
            return leaf
        if (name := path_of(keys)) in given:
            value = jnp.asarray(given[name])
            stacks = value.ndim < leaf.ndim
            return jax.device_put(jnp.broadcast_to(value, leaf.shape) if stacks else value, leaf.sharding)
        floating = jnp.issubdtype(leaf.dtype, jnp.floating)
        return jax.device_put(leaf.astype(width), leaf.sharding) if floating and leaf.dtype != width else leaf

    return jax.tree_util.tree_map_with_path(replace, state)


def own_copies(tree: Any) -> Any:
    """Stacked arrays (devices, …), as ``pmap`` takes them, as global arrays (…) of which each device holds its own
    slice as a replica. Nothing moves here and nothing is compared: whether the copies are equal is up to training."""
    [first, *_] = jax.tree.leaves(tree)
    shards = sorted(first.addressable_shards, key=lambda shard: shard.index[0].start or 0)
    mesh = Mesh(np.array([shard.device for shard in shards]), ("devices",))
    return _unstack(mesh)(jax.device_put(tree, NamedSharding(mesh, PartitionSpec("devices"))))


@cache
def _unstack(mesh: Mesh) -> Any:
    def own(stacked: Any) -> Any:
        return jax.tree.map(lambda leaf: leaf[0], stacked)

    return jax.jit(
        jax.shard_map(own, mesh=mesh, in_specs=PartitionSpec("devices"), out_specs=PartitionSpec(), check_vma=False)
    )


def copied(state: Any) -> Any:
    """A copy of every array of a state, where it lies: a step may take it for good."""
    return jax.tree.map(lambda leaf: leaf.copy() if isinstance(leaf, jax.Array) else leaf, state)
