"""The packages that bring the compilers: whether they are here, and of the release that JAX asks for."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from pathlib import Path
from shutil import which

from packaging.requirements import Requirement
from packaging.version import Version

from meshproof.targets import HOST_SIDE, Target, read_target

PACKAGES = {"gpu": ("jax-cuda13-plugin", "jax-cuda13-pjrt"), "tpu": ("libtpu",)}
"""What has the compiler of each kind of target. ``meshproof[gpu]`` and ``meshproof[tpu]`` bring them."""

EXTRAS = {"gpu": "cuda13-local", "tpu": "tpu"}
"""The extra of JAX that asks for them in its own release."""

ASSEMBLER = "nvidia-cuda-nvcc"
"""What has ptxas, which XLA calls for GPUs. It needs no device, and ``jax[cuda13-local]`` leaves it to the machine."""

TOOLKITS = ("/usr/local/cuda", "/opt/cuda")
"""Where XLA looks for one."""

WHOLE_HOSTS = Version("0.0.43")
"""Releases of libtpu before this one refuse a topology of less than a host; 0.0.50.1 makes it."""


def compilers(names: Iterable[str]) -> tuple[str, ...]:
    """What must be installed beside JAX to compile for these targets. Raises ``ValueError`` for an unknown one."""
    kinds = dict.fromkeys(target.kind for target in map(read_target, names) if target.compiles_only)
    return (*(f"jax[{EXTRAS[kind]}]" for kind in kinds), *([ASSEMBLER] if "gpu" in kinds else []))


def missing(target: Target) -> str:
    """Why a target's compiler cannot be used here, and what to install; empty where it can. Starts no JAX."""
    for package in PACKAGES.get(target.kind, ()):
        how = f"pip install 'jax[{EXTRAS[target.kind]}]=={version('jax')}'"
        try:
            has = version(package)
        except PackageNotFoundError:
            return f"--target {target.name}: its compiler is in {package}, which is not installed; {how}"
        wanted = _wanted(package)
        if wanted is not None and not wanted.specifier.contains(has, prereleases=True):
            return (
                f"--target {target.name}: {package} {has} is of another release than jax {version('jax')}, "
                f"which asks for {wanted.specifier}; {how}"
            )
        if package == "libtpu" and 1 in target.shape[:2] and Version(has) < WHOLE_HOSTS:
            return (
                f"--target {target.name}: libtpu {has} knows whole hosts of {HOST_SIDE}x{HOST_SIDE} chips only; "
                f"expected an even number in each of the first two places of {target.topology}"
            )
    if target.kind == "gpu" and not has_assembler():
        return f"--target {target.name}: its compiler calls ptxas, which is not installed; pip install {ASSEMBLER}"
    return ""


def has_assembler() -> bool:
    """Whether ptxas is where XLA looks for it: on the path, in a CUDA toolkit, or in the package."""
    spec = find_spec("nvidia")
    packaged = (spec and spec.submodule_search_locations) or ()
    folders = [*TOOLKITS, *(f"{folder}/cu13" for folder in packaged)]
    return bool(which("ptxas")) or any(Path(folder, "bin", "ptxas").exists() for folder in folders)


def _wanted(package: str) -> Requirement | None:
    """What the installed JAX asks for of a package; ``None`` where another package does."""
    asked = map(Requirement, requires("jax") or ())
    return next((requirement for requirement in asked if requirement.name == package), None)
