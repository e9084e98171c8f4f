"""An operation as a compiled program: its result, and the gradients of that result by its operands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from math import prod
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from meshproof.operations import Operand, Operation
from meshproof.operations.layouts import AXES, Layout, Spec, entries_of

Arrays = Sequence[Any]


def drawn(operand: Operand, which: int, seed: int) -> np.ndarray:
    """The values of an operand in the run of that number."""
    draw = operand.draws[which % len(operand.draws)]
    return np.asarray(draw(np.random.default_rng([seed, which]), operand.shape)).astype(operand.dtype)


def runs_of(operation: Operation) -> int:
    """How often a program runs: once for each of the values that an operand can have."""
    return max(len(operand.draws) for operand in operation.operands)


def operands_of(operation: Operation, which: int) -> list[np.ndarray]:
    """The operands of one run."""
    return [drawn(operand, which, place) for place, operand in enumerate(operation.operands)]


def cotangent_of(which: int, shape: tuple[int, ...]) -> np.ndarray:
    """What weights the elements of a result in one run: whole numbers, no sum of which is rounded."""
    return np.asarray(np.random.default_rng([7, which]).integers(-2, 3, size=shape), np.float32)


def anywhere(result: Any) -> Any:
    """The result wherever it is."""
    return result


def forward(operation: Operation, placed: Callable[[Any], Any] = anywhere) -> Callable[..., Any]:
    """The results alone, as a list, of which the first is ``placed``."""

    def run(operands: Arrays, cotangent: Any) -> Any:
        first, *others = jax.tree.leaves(operation.function(*operands))
        return [placed(first), *others], []

    return run


def with_gradients(
    operation: Operation, resharded: bool = False, placed: Callable[[Any], Any] = anywhere
) -> Callable[..., Any]:
    """The result, ``placed``, and its gradients by the operands that have them, weighted by a cotangent.

    On explicit axes the cotangent must be ``resharded``: sharded as the result is.
    """
    places = operation.differentiated

    def run(operands: Arrays, cotangent: Any) -> Any:
        def function(*chosen: Any) -> Any:
            given = dict(zip(places, chosen, strict=True))
            return placed(operation.function(*(given.get(place, operand) for place, operand in enumerate(operands))))

        result, transposed = jax.vjp(function, *(operands[place] for place in places))
        if resharded:
            cotangent = sharded_alike(cotangent, result)
        return [result], list(transposed(cotangent.astype(result.dtype)))

    return run


def sharded_alike(array: Any, other: Any) -> Any:
    """The array, sharded as another one is on explicit axes."""
    reshard = getattr(jax, "reshard", None) or jax.sharding.reshard  # type: ignore[attr-defined]
    return reshard(array, jax.typeof(other).sharding)


def make_mesh(shape: tuple[int, ...], axis_type: str = "Auto") -> Mesh:
    """A mesh of that shape, of the first devices."""
    devices = np.asarray(jax.devices()[: prod(shape)]).reshape(shape)
    kinds = getattr(jax.sharding, "AxisType", None)
    named = {"axis_types": (kinds[axis_type],) * len(shape)} if kinds else {}
    return Mesh(devices, AXES[: len(shape)], **named)


def use(mesh: Mesh) -> AbstractContextManager[Any]:
    """The mesh as the current one: ``jax.set_mesh``, or the mesh itself before there was one."""
    return jax.set_mesh(mesh) if hasattr(jax, "set_mesh") else mesh


def current_mesh() -> Any:
    """The mesh that a program is traced for, as `use` set it."""
    if hasattr(jax.sharding, "get_abstract_mesh"):
        return jax.sharding.get_abstract_mesh()
    from jax._src.mesh import thread_resources

    return thread_resources.env.physical_mesh


def place(operands: Sequence[np.ndarray], layout: Layout, mesh: Mesh) -> list[jax.Array]:
    """Each operand by its spec."""
    return [jax.device_put(one, sharding(spec, mesh)) for one, spec in zip(operands, layout.specs, strict=True)]


def sharding(spec: Spec, mesh: Mesh) -> NamedSharding:
    """A spec on a mesh."""
    return NamedSharding(mesh, PartitionSpec(*entries_of(spec)))


def placed_by(layout: Layout, mesh: Mesh) -> Callable[[Any], Any]:
    """What constrains a result as the layout says. One of another rank is left as it is: it is found wrong."""
    if layout.result is None:
        return anywhere
    rank, wanted = len(layout.result), sharding(layout.result, mesh)
    return lambda result: jax.lax.with_sharding_constraint(result, wanted) if result.ndim == rank else result


def replicas(array: jax.Array) -> list[np.ndarray]:
    """The array as each set of its copies has it: those that differ in a bit from the first, after the first."""
    copies: dict[int, np.ndarray] = {}
    for shard in array.addressable_shards:
        whole = copies.setdefault(shard.replica_id, np.zeros(array.shape, array.dtype))
        whole[shard.index] = np.asarray(shard.data)
    first, *others = copies.values()
    return [first, *(other for other in others if other.tobytes() != first.tobytes())]
