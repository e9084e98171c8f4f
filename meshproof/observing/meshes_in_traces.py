"""A trainer's step may set its mesh, as ``with jax.set_mesh(mesh): return step(state, batch)``, which JAX refuses in a
trace: what is traced from outside gets the mesh without its devices there, which is all that a trace asks of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

import jax


@contextmanager
def meshes_in_traces() -> Iterator[None]:
    """While a member is traced that may set its mesh."""
    with patch.object(jax, "set_mesh", _without_devices), patch.object(jax.sharding, "set_mesh", _without_devices):
        yield


def _without_devices(mesh: Any) -> AbstractContextManager[Any]:
    return jax.sharding.use_abstract_mesh(mesh.abstract_mesh)
