"""The compilers of devices that are not here: their devices, and what they make of a function.

A compiler is had from its package alone, through JAX's topologies. JAX's own cache of compiled programs can be written
for such devices and not be read, so that there is one of its own here: a file for each program.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import patch

import jax
from jax._src import compiler as jax_compiler
from jax._src import mesh_utils, sharding_impls, xla_bridge
from jax._src.cudnn import fused_attention_stablehlo
from jax._src.interpreters import mlir
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from meshproof.files import replace_pickle
from meshproof.observing.programs import Compiled, told_of
from meshproof.targets import Target
from meshproof.targets.gpus import CUDNN_VERSION, configuration
from meshproof.targets.packages import PACKAGES

PMAP = import_module("jax._src.pmap" if find_spec("jax._src.pmap") else "jax._src.shard_map")
"""Where `jax.pmap` makes its mesh: in ``shard_map`` before jax 0.8."""

GET_BACKEND, COMPILE = mlir.ModuleContext.get_backend, jax_compiler.backend_compile_and_load
"""JAX's own: `backend_if_any` and `compile_without_callbacks` take their places."""

Placement = tuple[PartitionSpec, str | None]
"""How an output is placed on the mesh, and in which kind of memory."""


class CompilerError(Exception):
    """A target's compiler does not know its topology."""


class Made(NamedTuple):
    """A compiled program, and how its outputs are placed, in the order of the leaves.

    ``None`` where one is placed otherwise than over the mesh by a ``PartitionSpec``.
    """

    program: Compiled
    outputs: tuple[Placement | None, ...]


class Compiler:
    """The compiler of a target, with its devices. Raises `CompilerError` for a topology that it does not know."""

    def __init__(self, target: Target, folder: Path) -> None:
        self.target, self.folder = target, folder
        jax.devices()  # JAX finds its plugins
        try:
            self.devices = described(target)
        except Exception as error:
            raise CompilerError(f"--target {target.name}: the compiler refuses this topology: {error}") from error
        self.stack = [target.name, os.environ.get("XLA_FLAGS", ""), os.environ.get("LIBTPU_INIT_ARGS", "")]
        self.stack += [f"{name} {_installed(name)}" for name in ("jax", "jaxlib", *PACKAGES.get(target.kind, ()))]

    def compile(self, lowered: Any, mesh: Mesh) -> Made:
        """What this compiler makes of a lowered function, or made of it in an earlier run."""
        devices = [device.id for device in mesh.devices.flat]
        written = "\n".join([*self.stack, str(devices), lowered.as_text(debug_info=True)])
        path = self.folder / f"{hashlib.sha256(written.encode()).hexdigest()}-cache"
        with suppress(OSError, EOFError, pickle.UnpicklingError, AttributeError):
            found: Made = pickle.loads(path.read_bytes())
            os.utime(path)
            return found._replace(program=replace(found.program, seconds=None))
        start = time.perf_counter()
        compiled = lowered.compile()
        seconds = time.perf_counter() - start
        outputs = tuple(placement(sharding, mesh) for sharding in jax.tree.leaves(compiled.output_shardings))
        made = Made(told_of(compiled, seconds), outputs)
        with suppress(OSError):  # a full disk keeps nothing
            self.folder.mkdir(parents=True, exist_ok=True)
            replace_pickle(path, made)
        return made


def described(target: Target) -> list[Any]:
    """The devices of a target, of which nothing but its compiler knows; or this process's own."""
    if target.chip is None:
        return jax.devices()
    if target.kind == "gpu":
        shape = "x".join(map(str, (1, 1, *target.shape)[-3:]))
        told = {"target_config": configuration(target.chip), "topology": shape}
        return list(topologies.get_topology_desc("", "cuda", **told).devices)
    options = dict(target.chip.described.get("topology", {}))
    if target.slices > 1:
        options["num_slices"] = target.slices
    name = f"{target.chip.name}:{target.topology}"
    return list(topologies.get_topology_desc(platform="tpu", topology_name=name, **options).devices)


def placement(sharding: Any, mesh: Mesh) -> Placement | None:
    """How an output is placed on a mesh, if it is over the devices of that mesh."""
    if isinstance(sharding, NamedSharding) and list(sharding.mesh.devices.flat) == list(mesh.devices.flat):
        return sharding.spec, sharding.memory_kind
    return None


@contextmanager
def default_devices(devices: list[Any]) -> Iterator[None]:
    """Code in this context is traced and compiled as on the hosts of these devices, which need not be here.

    Otherwise a trainer that adapts to its host, as one that drops its constraints on a CPU, would be compiled as a
    program that nobody runs.
    """
    with ExitStack() as stack:
        stack.enter_context(only_devices(devices))
        if devices[0].platform == "gpu":
            stack.enter_context(patch.object(fused_attention_stablehlo, "check_cudnn_version", lambda: CUDNN_VERSION))
            stack.enter_context(patch.object(mlir.ModuleContext, "get_backend", backend_if_any))
            stack.enter_context(patch.object(jax_compiler, "backend_compile_and_load", compile_without_callbacks))
        yield


@contextmanager
def only_devices(devices: list[Any]) -> Iterator[None]:
    """Code in this context that asks JAX which devices there are is told these."""
    platform = devices[0].platform
    told: dict[str, Any] = {
        "devices": lambda backend=None: list(devices),
        "local_devices": lambda process_index=None, backend=None, host_id=None: list(devices),
        "device_count": lambda backend=None: len(devices),
        "local_device_count": lambda backend=None: len(devices),
        "default_backend": lambda: platform,
    }
    own = [vars(module) for module in (mesh_utils, PMAP, sharding_impls)]
    bridge = SimpleNamespace(**vars(xla_bridge) | {"devices": told["devices"]})
    with ExitStack() as stack:
        stack.enter_context(patch.multiple(jax, **told))
        for names in own:  # what makes a mesh where it is handed no devices
            stack.enter_context(patch.dict(names, xb=bridge))
        yield


def backend_if_any(context: mlir.ModuleContext, optional: bool = False) -> Any:
    """The backend that a program is lowered for. A callback to the host asks for a GPU's, and makes nothing of it."""
    try:
        return GET_BACKEND(context, optional=optional)
    except RuntimeError:
        return None


def compile_without_callbacks(backend: Any, module: Any, devices: Any, options: Any, host_callbacks: Any) -> Any:
    """A program that never runs calls nobody: the functions of its callbacks to the host are left out, not the calls
    themselves. (A client that only compiles takes none.)"""
    return COMPILE(backend, module, devices, options, [])


def _installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"
