"""The stack that is being judged: versions, devices, and the defaults that every other number depends on."""

from __future__ import annotations

import datetime
import json
import os
import platform
from importlib.metadata import Distribution, PackageNotFoundError, distributions, version
from typing import Any

import jax

from meshproof.observing.compilers import Compiler
from meshproof.observing.defaults import probe_defaults
from meshproof.report.document import ORIGIN, PACKAGES


def versions() -> dict[str, str | None]:
    """What is installed, by its short name; ``None`` where it is not."""
    return {"python": platform.python_version()} | {name: _version(package) for name, package in PACKAGES.items()}


def describe(with_flax: bool) -> dict[str, Any]:
    """The environment of a report; ``with_flax`` asks what Flax does by default, too. Starts the JAX backend."""
    devices = jax.devices()
    return {
        **versions(),
        "platform": jax.default_backend(),
        "device_kind": devices[0].device_kind,
        "device_count": len(devices),
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
        "libtpu_init_args": os.environ.get("LIBTPU_INIT_ARGS", ""),
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "defaults": probe_defaults(with_flax),
        "packages": dict(sorted((found.name.lower(), version_of(found)) for found in distributions())),
    }


def devices_of(compiler: Compiler) -> dict[str, Any]:
    """What the environment of a target that only compiles says of its devices, in place of the host's."""
    target, [device, *others] = compiler.target, compiler.devices
    assert target.chip
    return {"platform": target.kind, "device_kind": device.device_kind, "device_count": 1 + len(others)}


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


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
