"""Flags of the compilers: those that a user sets, and those that releases of jaxlib no longer have."""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

FLAG_VARIABLES = ("XLA_FLAGS", "LIBTPU_INIT_ARGS")
NOT_JUDGED = (
    *("xla_dump_", "xla_force_host_platform_device_count", "xla_log_", "xla_hlo_profile"),
    *("xla_backend_optimization_level", "xla_gpu_autotune_level", "xla_gpu_enable_triton_gemm"),
)
"""Beginnings of the names of flags that are not meant to change what is compiled, and of those that are set here."""

ORDERED = ("xla_gpu_exclude_nondeterministic_ops", "xla_gpu_deterministic_ops")
"""Flags under which XLA takes the sums of a GPU's program in one order, so that its runs are equal in bits."""

INERT, UNKNOWN = "changes nothing", "No such compile option"
"""What may be wrong with a flag, beside what the compiler says of its value; the second in the compiler's words."""


def flags_set(variables: Mapping[str, str]) -> dict[str, str]:
    """The flags of compilers in these environment variables, name to value: those that are to change programs."""
    words = [word.lstrip("-") for name in FLAG_VARIABLES for word in shlex.split(variables.get(name, ""))]
    read = (word.partition("=") for word in words if word.startswith("xla_") and not word.startswith(NOT_JUDGED))
    return {name: value if sign else "true" for name, sign, value in read}


def adds_in_any_order(platform: str, variables: Mapping[str, str]) -> bool:
    """Whether programs on this platform may add in another order in each run, by these environment variables."""
    set_here = flags_set(variables)
    return platform == "gpu" and not any(set_here.get(flag, "").lower() in ("true", "1") for flag in ORDERED)


def concerns(flag: str, kind: str) -> bool:
    """Whether a flag is one of the compiler of this kind of target, by its name: ``xla_gpu_…`` is none of the CPU's."""
    own = flag.split("_")[1]
    return own == kind or own not in ("cpu", "gpu", "tpu") or kind == "native"


def last_release(flag: str) -> str | None:
    """The last looked-at release of jaxlib that had a flag which the newest has not; ``None`` for any other."""
    return _dropped().get(flag)


@cache
def _dropped() -> dict[str, str]:
    told = tomllib.loads((files(__package__) / "dropped_flags.toml").read_text(encoding="utf-8"))
    return {flag: release for release, flags in told["dropped_after"].items() for flag in flags}
