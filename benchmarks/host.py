"""The accelerators of this host, found without starting JAX in this process."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec

ASK = "import jax; print(jax.default_backend(), jax.device_count(), jax.devices()[0].device_kind, sep='|')"


class HostError(Exception):
    """This host cannot be timed as asked."""


@dataclass(frozen=True)
class Accelerators:
    """The accelerators that JAX finds; none if ``count`` is 0."""

    platform: str
    count: int
    kind: str


NONE = Accelerators("cpu", 0, "no accelerator")


@cache
def accelerators() -> Accelerators:
    """This host's accelerators, as a separate process sees them; started only if JAX has a plugin for any.

    Raises `HostError` if that process fails.
    """
    plugins = entry_points(group="jax_plugins") or find_spec("jax_plugins") or find_spec("libtpu")
    if not plugins or os.environ.get("JAX_PLATFORMS") == "cpu":
        return NONE
    environment = os.environ | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    asked = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, env=environment)
    if asked.returncode:
        said = (asked.stderr.strip() or "nothing").splitlines()[-1]
        raise HostError(f"JAX does not start on this host: {said}; JAX_PLATFORMS=cpu measures its CPU")
    return read(asked.stdout)


def read(answer: str) -> Accelerators:
    """The output of that process: platform, count and kind."""
    platform, count, kind = answer.strip().splitlines()[-1].split("|")
    return NONE if platform == "cpu" else Accelerators(platform, int(count), kind)
