"""Settings of JAX that every other number depends on, as they are where nobody sets them."""

from __future__ import annotations

from typing import Any

import jax

from meshproof.observing.defaults.probe import ABSENT, probe

config: Any = jax.config


@probe("jax", (">=0.9.0", "Explicit"), ("<0.9.0", "Auto"), kind="setting")
def mesh_axis_types() -> str:
    """type of the axes that ``jax.make_mesh`` makes"""
    return jax.make_mesh((1,), ("probe",), devices=jax.devices()[:1]).axis_types[0].name


@probe("jax", (">=0.7.0", "shardy"), ("<0.7.0", "gspmd"), kind="setting")
def partitioner() -> str:
    """what partitions programs"""
    return "shardy" if config.jax_use_shardy_partitioner else "gspmd"


@probe("jax", (">=0.5.0", True), kind="setting")
def rng_partitionable() -> bool:
    """whether draws do not depend on how they are sharded"""
    return bool(config.jax_threefry_partitionable)


@probe("jax", (">=0.5.0", None), kind="setting")
def matmul_precision() -> str | None:
    """precision of products"""
    return config.jax_default_matmul_precision


@probe("jax", (">=0.5.0", False), kind="setting")
def x64() -> bool:
    """whether ``jax.numpy.asarray(1.0)`` is float64"""
    return jax.numpy.asarray(1.0).dtype == "float64"


@probe("jax", (">=0.7.0", True), ("<0.7.0", False))
def direct_linearization() -> bool | str:
    """whether derivatives are linearised directly, not by JVP and partial evaluation"""
    return getattr(config, "jax_use_direct_linearize", ABSENT)
