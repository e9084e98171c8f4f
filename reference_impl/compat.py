"""The few names that moved within the supported window of JAX."""

from __future__ import annotations

from contextlib import AbstractContextManager
from importlib.metadata import version
from typing import Any

import flax
import jax
from flax import nnx
from jax.sharding import Mesh
from packaging.version import Version


def varying(value: jax.Array, axis: str | tuple[str, ...]) -> jax.Array:
    """``value``, replicated over ``axis`` (or several) in ``shard_map``, typed as if every device had its own.

    A gradient with respect to it is then this device's own; of a replicated value it would be psum-ed over ``axis``.
    Called ``pvary`` up to JAX 0.8.1, ``pcast`` from 0.8.2 on.
    """
    if hasattr(jax.lax, "pcast"):
        return jax.lax.pcast(value, axis, to="varying")
    return jax.lax.pvary(value, axis)  # type: ignore[attr-defined]


def gather_equal(shard: jax.Array, axis: str, dimension: int) -> jax.Array:
    """All shards along a dimension, typed as what every device along ``axis`` has alike.

    A way of ``all_gather`` from JAX 0.10.1 on. Before, a function of its own, from 0.8.2 on under no public name.
    """
    if Version(jax.__version__) < Version("0.10.1"):
        from jax._src.lax import parallel

        return parallel.all_gather_invariant(shard, axis, axis=dimension, tiled=True)  # type: ignore[attr-defined]
    return jax.lax.all_gather(shard, axis, axis=dimension, tiled=True, to="invarying")  # type: ignore[no-any-return]


def reshard(tree: Any, specs: Any) -> Any:
    """A tree on explicit mesh axes, laid out by specs. In ``jax.sharding`` before it was in ``jax``."""
    return (jax if hasattr(jax, "reshard") else jax.sharding).reshard(tree, specs)


def resolving(mesh: Mesh) -> AbstractContextManager[Any]:
    """A context in which NNX makes variables that are annotated, and places none.

    Flax before 0.12.1 places each by a constraint, for which JAX of that time needs the mesh in the context.
    """
    return nnx.use_eager_sharding(False) if hasattr(nnx, "use_eager_sharding") else mesh


BARRIERS_HOLD = Version(jax.__version__) >= Version("0.11.1")
"""Whether XLA:CPU keeps optimization barriers until a program is scheduled.

Older ones drop them before. A recomputation may then run as early as the computation that it replaces, so that both
results are held; and a gather by hand is merged with the one that it repeats.
"""

NNX_OPTIMIZER_SHARDING = Version(flax.__version__) >= Version("0.12.7")
"""Whether ``nnx.Optimizer`` heeds ``optimizer_sharding``; older versions ignore it."""

ORBAX_SAVES_TREES = Version(version("orbax-checkpoint")) >= Version("0.12")
"""Whether Orbax has ``v1.save`` and ``v1.load`` of a tree. The module itself takes most of a second to
import."""
