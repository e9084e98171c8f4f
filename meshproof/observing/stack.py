"""The stack that is being judged: versions, devices, and the defaults that every other number depends on."""

from __future__ import annotations

import datetime
import json
import os
import platform
from importlib.metadata import Distribution, PackageNotFoundError, distributions, version
from typing import Any

import jax
from packaging.specifiers import SpecifierSet

from meshproof.observing.compilers import Compiler
from meshproof.report.document import ORIGIN, PACKAGES

DEFAULTS: dict[str, tuple[tuple[str, Any], ...]] = {
    "mesh_axis_types": ((">=0.9.0", "Explicit"), ("<0.9.0", "Auto")),
    "partitioner": ((">=0.7.0", "shardy"),),
    "rng_partitionable": ((">=0.5.0", True),),
    "matmul_precision": ((">=0.5.0", None),),
    "x64": ((">=0.5.0", False),),
}
"""The known default of each probe by JAX version; the first specifier that admits the version holds."""


def versions() -> dict[str, str | None]:
    """What is installed, by its short name; ``None`` where it is not."""
    return {"python": platform.python_version()} | {name: _version(package) for name, package in PACKAGES.items()}


def describe() -> dict[str, Any]:
    """The environment of a report. Starts the JAX backend."""
    devices = jax.devices()
    return {
        **versions(),
        "platform": jax.default_backend(),
        "device_kind": devices[0].device_kind,
        "device_count": len(devices),
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
        "libtpu_init_args": os.environ.get("LIBTPU_INIT_ARGS", ""),
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "defaults": probe_defaults(),
        "packages": dict(sorted((found.name.lower(), version_of(found)) for found in distributions())),
    }


def describe_target(compiler: Compiler) -> dict[str, Any]:
    """The environment of a target that only compiles: its devices in place of the host's, and what it is."""
    target, [device, *others] = compiler.target, compiler.devices
    assert target.chip
    return describe() | {
        "platform": target.kind,
        "device_kind": device.device_kind,
        "device_count": 1 + len(others),
    }


def version_of(installed: Distribution) -> str:
    """The version, and where it is from unless an index had it: a wheel's name, or an address without its folder.

    That is kept by whatever installed it, in ``direct_url.json`` (https://packaging.python.org, "Direct URL Data
    Structure").
    """
    direct = installed.read_text("direct_url.json")
    if direct is None:
        return installed.version
    origin = json.loads(direct)
    commit = origin.get("vcs_info", {}).get("commit_id")
    name = origin["url"].rstrip("/").rpartition("/")[2]
    return f"{installed.version}{ORIGIN}{f'{name} at {commit}' if commit else name}"


def probe_defaults() -> dict[str, Any]:
    """What this JAX does where nobody says: found by asking it, not by its version."""
    mesh = jax.make_mesh((1,), ("probe",), devices=jax.devices()[:1])
    config: Any = jax.config
    return {
        "mesh_axis_types": mesh.axis_types[0].name,
        "partitioner": "shardy" if config.jax_use_shardy_partitioner else "gspmd",
        "rng_partitionable": bool(config.jax_threefry_partitionable),
        "matmul_precision": config.jax_default_matmul_precision,
        "x64": jax.numpy.asarray(1.0).dtype == "float64",
    }


def flipped_defaults(environment: dict[str, Any]) -> list[str]:
    """Each default that is not the known one of this JAX version, in words."""
    flipped = []
    for name, observed in environment["defaults"].items():
        admitted = [value for specifier, value in DEFAULTS[name] if admits(specifier, environment["jax"])]
        if not admitted or observed != admitted[0]:
            known = repr(admitted[0]) if admitted else "one that is known"
            flipped.append(f"default of {name} on jax {environment['jax']}: expected {known}, saw {observed!r}")
    return flipped


def admits(specifier: str, installed: str) -> bool:
    """Whether a version is one of those that a specifier describes; prereleases count by their number."""
    return SpecifierSet(specifier, prereleases=True).contains(installed)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
