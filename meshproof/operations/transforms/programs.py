"""A composition as a program of a mesh, and as what it means on one device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from meshproof.operations.layouts import Spec, entries_of
from meshproof.operations.programs import sharded_alike
from meshproof.operations.transforms import SHAPE, Function
from meshproof.operations.transforms.collectives import Devices, Named
from meshproof.operations.transforms.settings import Setting

Wrap = Callable[[Function], Function]


def operands() -> tuple[np.ndarray, np.ndarray]:
    """x, of −1, 0 and 1; and w, with about two of them in each row, so that products stay small."""
    draws = np.random.default_rng(11)
    x = draws.integers(-1, 2, size=SHAPE)
    w = draws.integers(-1, 2, size=SHAPE) * (draws.random(SHAPE) < 0.3)
    return x.astype(np.float32), w.astype(np.float32)


def cotangents() -> tuple[np.ndarray, np.ndarray]:
    """What weights the results in a gradient."""
    draws = np.random.default_rng(13)
    return draws.integers(-1, 2, size=SHAPE).astype(np.float32), draws.integers(-1, 2, size=SHAPE).astype(np.float32)


def specs_of(setting: Setting) -> tuple[Spec, Spec]:
    """Where x and w are."""
    x, w = setting.body.split
    return split_by(setting, x), split_by(setting, w)


def split_by(setting: Setting, dimension: int | None) -> Spec:
    """The spec of a matrix that is split along a dimension, or not."""
    return tuple(setting.ground.axes if place == dimension else () for place in range(2))


def composed(setting: Setting, local: Function, wrap: Wrap, meant: bool) -> Function:
    """The body, transformed twice; ``wrap`` is ``shard_map``, or what that means, and is where the form says."""
    inner, outer = (transform.meaning if meant else transform.apply for transform in (setting.inner, setting.outer))
    match setting.form.place:
        case "between":
            return outer(wrap(inner(local)))
        case "outermost":
            return wrap(outer(inner(local)))
        case _:
            return outer(inner(wrap(local)))


def program(setting: Setting, mesh: Mesh) -> Function:
    """What JAX is asked to do."""
    ground = setting.ground
    if setting.form.place == "none":
        return meaning_of(setting, meant=False)
    collectives = Named(ground.axis, ground.size)
    return composed(
        setting,
        lambda x, w: setting.body.function(collectives, x, w),
        lambda function: sharded(setting, mesh, function),
        meant=False,
    )


def meaning(setting: Setting) -> Function:
    """What that means, on one device."""
    return meaning_of(setting, meant=True)


def meaning_of(setting: Setting, meant: bool) -> Function:
    """The composition with a dimension for the devices, of what transforms mean or of the transforms themselves."""
    devices, split = Devices(setting.ground.size, setting.form.check_vma), setting.body.split

    def wrap(function: Function) -> Function:
        def run(x: Any, w: Any) -> tuple[Any, Any]:
            results = function(devices.scattered(x, split[0]), devices.scattered(w, split[1]))
            return devices.gathered(results[0], split[0]), devices.gathered(results[1], split[1])

        return run

    return composed(setting, lambda x, w: setting.body.function(devices, x, w), wrap, meant)


def sharded(setting: Setting, mesh: Mesh, function: Function) -> Function:
    """The function of shards as one of whole arrays, by ``shard_map``."""
    split, specs = setting.body.split, [PartitionSpec(*entries_of(spec)) for spec in specs_of(setting)]
    stacked = [setting.differs and dimension is None for dimension in split]

    def run(x: Any, w: Any) -> tuple[Any, Any]:
        def body(x: Any, *others: Any) -> list[Any]:
            results = function(x, *(others or (w,)))
            return [result[None] if stack else result for result, stack in zip(results, stacked, strict=True)]

        given = (x,) if setting.form.closes else (x, w)
        results = shard_map(
            body,
            mesh,
            tuple(specs[: len(given)]),
            [PartitionSpec(setting.ground.axis) if stack else spec for spec, stack in zip(specs, stacked, strict=True)],
            setting,
        )(*given)
        first, second = (result.mean(0) if stack else result for result, stack in zip(results, stacked, strict=True))
        return first, second

    return run


def shard_map(function: Callable[..., Any], mesh: Mesh, in_specs: Any, out_specs: Any, setting: Setting) -> Any:
    """``jax.shard_map``, or what it was before."""
    axes = {*setting.ground.axes} if setting.ground.automatic else {*mesh.axis_names}
    checks = setting.form.check_vma
    if hasattr(jax, "shard_map"):
        return jax.shard_map(
            function, mesh=mesh, in_specs=in_specs, out_specs=out_specs, axis_names=axes, check_vma=checks
        )
    from jax.experimental.shard_map import shard_map as before

    others = frozenset(mesh.axis_names) - axes
    earlier: Any = before
    return earlier(function, mesh, in_specs, out_specs, check_rep=checks, auto=others)


def with_gradients(function: Function, explicit: bool = False) -> Callable[..., Any]:
    """The results of x and w, and the gradients of these by them, for cotangents of each."""

    def run(x: Any, w: Any, *weights: Any) -> Any:
        results, transposed = jax.vjp(function, x, w)
        if explicit:
            weights = tuple(map(sharded_alike, weights, results))
        return [*results], [*transposed(tuple(weights))]

    return run
