"""The trainer on one device. Of several processes each has it on a device of its own, and all see the same."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from typing import Any

import jax

from meshproof.cases import has_member
from meshproof.observing.compilers import only_devices


def on_one_device(strategy: Any, dtype: str) -> Any:
    """What ``single_device(dtype)`` returns. Raises what it raises.

    It makes its mesh of the first of JAX's devices, which one process has and the others cannot read: over several
    processes it is told those of its own alone, in whatever it does. A mesh that it sets while it is made is in force
    for it alone, and where the strategy has set one for all, that of one device is.
    """
    if jax.distributed.is_initialized():
        return Within(strategy, partial(only_devices, jax.local_devices())).single_device(dtype)
    before = in_force()
    try:
        made = strategy.single_device(dtype)
        mesh = in_force()
    finally:
        if in_force() != before:
            with suppress(ValueError):  # jax 0.9.0 takes no None
                jax.set_mesh(before)
    if before is not None and mesh == before and has_member(made, "mesh"):
        mesh = made.mesh
    return made if mesh is None else Within(made, partial(set_outside, mesh), partial(brought_to, mesh))


def in_force() -> jax.sharding.Mesh | None:
    """The mesh that was set for all; none on releases that do not tell."""
    if not hasattr(jax.sharding, "get_mesh"):  # jax 0.7.2
        return None
    mesh = jax.sharding.get_mesh()
    return None if mesh.empty else mesh


def set_outside(mesh: jax.sharding.Mesh) -> AbstractContextManager[Any]:
    """The mesh in force; inside of a trace, where none may be set, whatever is."""
    try:
        jax.sharding.get_mesh()
    except ValueError:
        return nullcontext()
    return jax.set_mesh(mesh)


def brought_to(mesh: jax.sharding.Mesh, given: Any) -> Any:
    """The same, with arrays that were made on other devices, as under another mesh in force, copied to these."""
    devices, whole = {*mesh.devices.flat}, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())

    def strays(leaf: Any) -> bool:
        held = isinstance(leaf, jax.Array) and not isinstance(leaf, jax.core.Tracer) and leaf.committed
        return held and not leaf.sharding.device_set <= devices

    if not any(map(strays, jax.tree.leaves(given))):
        return given  # what is changed in place is what was given
    return jax.tree.map(lambda leaf: jax.device_put(leaf, whole) if strays(leaf) else leaf, given)


class Within:
    """An object whose attributes are looked up, and called, in a context, with what was ``brought`` to it; what is no
    trainer is returned as it is."""

    def __init__(
        self,
        inner: Any,
        context: Callable[[], AbstractContextManager[Any]],
        brought: Callable[[Any], Any] = lambda given: given,
    ) -> None:
        self.inner, self.context, self.brought = inner, context, brought

    def __getattr__(self, name: str) -> Any:
        with self.context():
            value = getattr(self.inner, name)
        return Within(value, self.context, self.brought) if callable(value) else value

    def __call__(self, *given: Any, **named: Any) -> Any:
        """What the call returns, a trainer as one of these."""
        with self.context():
            returned = self.inner(*self.brought(given), **named)
            return Within(returned, self.context, self.brought) if has_member(returned, "train_step") else returned
