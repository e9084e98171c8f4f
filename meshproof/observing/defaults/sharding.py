"""What JAX does with devices, specs and meshes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import jax
from jax import numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from meshproof.observing.defaults.probe import CannotAskError, first_cpu, probe


def output_of(function: Callable[..., Any]) -> Any:
    """What a function makes of an array that is sharded over an explicit axis, as a shape."""
    mesh = jax.make_mesh((1,), ("probe",), axis_types=(AxisType.Explicit,), devices=jax.devices()[:1])
    with jax.set_mesh(mesh):
        sharded = NamedSharding(mesh, PartitionSpec("probe"))
        return jax.eval_shape(function, jax.ShapeDtypeStruct((4,), jnp.float32, sharding=sharded))


def demand_no_mesh() -> None:
    """Under any mesh that a trainer has set ``jax.pmap`` raises (from 0.9 on), and other meshes are refused.

    Raises `CannotAskError` where one is set.
    """
    if not jax.sharding.get_abstract_mesh().empty:
        raise CannotAskError("a mesh is set")


@probe("jax", (">=0.7.1", "raises ShardingTypeError"), ("<0.7.1", ["probe"]))
def scatter_layout() -> list[str | None]:
    """spec of ``x.at[i].set(y)`` where x is sharded over an explicit axis"""
    return list(output_of(lambda x: x.at[jnp.array([0])].set(1.0)).sharding.spec)


@probe("jax", (">=0.9.1", "raises ValueError"), ("<0.9.1", "resharded"))
def shard_map_inputs() -> str:
    """``jax.shard_map`` of an array over an explicit axis that is sharded otherwise than ``in_specs``"""
    output_of(jax.shard_map(lambda x: x, in_specs=PartitionSpec(None), out_specs=PartitionSpec(None)))
    return "resharded"


@probe("jax", (">=0.10.0", False), ("<0.10.0", True))
def specs_equal_tuples() -> bool:
    """whether ``PartitionSpec("data")`` equals ``("data",)``"""
    return PartitionSpec("data") == cast(Any, ("data",))


@probe("jax", (">=0.10.0", "cpu:0"), ("<0.10.0", "TFRT_CPU_0"))
def cpu_device() -> str:
    """name of the first CPU device"""
    return str(first_cpu())


@probe("jax", (">=0.8.0", "jit"), ("<0.8.0", "xla_pmap"))
def pmap_primitive() -> str:
    """primitive of ``jax.pmap`` in a jaxpr"""
    demand_no_mesh()
    return jax.make_jaxpr(jax.pmap(lambda x: x))(jnp.zeros((1, 4))).eqns[0].primitive.name


@probe("jax", (">=0.6.0", [4]))
def pmap_shard() -> list[int]:
    """shape that a function sees under ``jax.pmap`` of an array of 1 × 4"""
    demand_no_mesh()
    seen: list[tuple[int, ...]] = []
    jax.eval_shape(jax.pmap(lambda x: seen.append(x.shape)), jax.ShapeDtypeStruct((1, 4), jnp.float32))
    return list(seen[0])
