"""The mesh of a trainer that is adopted, and where its batches lie."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding

from meshproof.adopting.adapter import AdoptError, attempt, spelled_spec
from meshproof.cases import has_member
from meshproof.observing.members import shown


def mesh_of(trainer: Any, members: dict[str, str], imports: set[str], held: Mapping[str, Any]) -> Mesh:
    """The trainer's mesh, or the one that these arrays are on, which is then written as ``mesh``. Raises `AdoptError`
    where there is none."""
    if has_member(trainer, "mesh"):
        mesh = attempt("mesh", lambda: trainer.mesh)
        if not isinstance(mesh, Mesh):
            raise AdoptError(f"mesh is {shown(mesh)}, expected a jax.sharding.Mesh")
        members["mesh"] = ""
        return mesh
    meshes = [array.sharding.mesh for array in held.values() if isinstance(array.sharding, NamedSharding)]
    found = max((mesh for mesh in meshes if isinstance(mesh, Mesh)), key=lambda mesh: mesh.size, default=None)
    if found is None:
        where = sorted({str(device) for array in held.values() for device in array.sharding.device_set})
        kinds = sorted({type(array.sharding).__name__ for array in held.values()})
        raise AdoptError(
            f"no mesh: the trainer has no member `mesh`, and of the {len(held)} arrays of its state and batch none is "
            f"on one (they are {', '.join(kinds)} on {', '.join(where)}); give it a mesh, or place the state with a "
            f"NamedSharding, jax.device_put(state, NamedSharding(mesh, PartitionSpec()))"
        )
    imports |= {"import numpy as np", "from jax.sharding import Mesh"}
    members["mesh"] = f"    @cached_property\n    def mesh(self):\n        return {mesh_source(found, imports)}"
    return found


def mesh_source(mesh: Mesh, imports: set[str]) -> str:
    """The expression that makes such a mesh of this machine's devices."""
    positions = {device: at for at, device in enumerate(jax.devices())}
    order = [positions[device] for device in mesh.devices.flat]
    in_order = order == list(range(len(order)))
    devices = f"np.array(jax.devices(){f'[:{len(order)}])' if in_order else f')[{order}]'}"
    if mesh.devices.ndim > 1:
        devices += f".reshape{mesh.devices.shape}"
    names, types = ", ".join(f'"{name}"' for name in mesh.axis_names), ""
    if any(kind.name == "Explicit" for kind in mesh.axis_types):
        imports.add("from jax.sharding import AxisType")
        types = f", axis_types=({', '.join(f'AxisType.{kind.name}' for kind in mesh.axis_types)},)"
    return f"Mesh({devices}, ({names}{',' if mesh.devices.ndim == 1 else ''}){types})"


def place_batches(batch: Mapping[str, Any], members: dict[str, str], imports: set[str]) -> None:
    """``shard_batch``, where batches come placed on a mesh: as they are."""
    specs = {field: getattr(getattr(value, "sharding", None), "spec", None) for field, value in batch.items()}
    if None not in specs.values():
        members["shard_batch"] = placing(specs, imports)


def placing(specs: Mapping[str, Any], imports: set[str]) -> str:
    """The source of ``shard_batch`` that gives the fields of a batch these layouts."""
    imports.add("from jax.sharding import NamedSharding")
    spelled = {field: spelled_spec(spec) for field, spec in specs.items()}
    if len(set(spelled.values())) == 1:
        [spec] = set(spelled.values())
        return (
            f"    def shard_batch(self, batch):\n        return jax.device_put(batch, NamedSharding(self.mesh, {spec}))"
        )
    table = ", ".join(f'"{field}": {spec}' for field, spec in spelled.items())
    return (
        "    def shard_batch(self, batch):\n"
        f"        specs = {{{table}}}\n"
        "        return {name: jax.device_put(batch[name], NamedSharding(self.mesh, specs[name])) for name in batch}"
    )
