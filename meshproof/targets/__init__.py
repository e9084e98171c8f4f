"""What a case is compiled for: this machine's devices, or a chip and a topology that only its compiler knows."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from math import prod
from typing import Any, Final, Literal

from meshproof.hlo.wire import span_of

HOST: Final = ("cpu", "native")
"""Targets that run: virtual CPU devices, and whatever accelerators the host has."""

MOST_VIRTUAL = 2048
"""Virtual devices of a process: XLA takes those beyond for another process's."""

Kind = Literal["cpu", "native", "gpu", "tpu"]
TOPOLOGY = re.compile(r"[1-9]\d{0,5}(x[1-9]\d{0,5}){0,2}")
SLICES = re.compile(r"[1-9]\d{0,3}")
HOST_SIDE = 2
"""TPU chips of a host along each of the first two axes of a topology: their sizes are multiples of it, or 1."""

MOST_DEVICES = 1 << 18
"""More than anybody trains on: JAX makes an object of each, in seconds for so many."""

RINGS: Final = ("all-gather", "all-reduce", "reduce-scatter")
"""Collectives whose bytes a ring passes on, so that few of a host's devices need send to the next one."""

EXAMPLES = "cpu, native, gpu:CHIP:DEVICES, gpu:CHIP:HOSTSxDEVICES, tpu:CHIP:TOPOLOGY or tpu:CHIP:TOPOLOGY:SLICES"


@dataclass(frozen=True)
class Chip:
    """One device of a target, as JAX counts devices: bytes, bytes per second, bfloat16 operations per second.

    ``kind`` is JAX's ``device_kind``. ``link_bandwidth`` is sent over one mesh axis within a host or slice,
    ``network_bandwidth`` to another one; a chip of a topology may be several ``devices``. The links join at most
    ``linked`` devices; a hop on them takes ``link_latency`` seconds, on the network ``network_latency`` (``None``:
    nobody says). ``described`` is what else its compiler is told.
    """

    name: str
    kind: str
    memory: int
    memory_bandwidth: float
    flops: float
    link_bandwidth: float
    network_bandwidth: float
    linked: int
    link_latency: float
    source: str
    described: dict[str, Any]
    devices: int = 1
    network_latency: float | None = None

    @property
    def axes(self) -> int:
        """Over how many axes of links a mesh can be laid out: the dimensions of a torus, 1 behind a switch."""
        return int(self.described.get("dimensions", 1))


@dataclass(frozen=True)
class Target:
    """A target by its name. ``shape`` is the topology, of chips (TPU) or of hosts and their devices (GPU)."""

    name: str
    kind: Kind
    chip: Chip | None = None
    shape: tuple[int, ...] = ()
    slices: int = 1

    @property
    def compiles_only(self) -> bool:
        """Whether nothing can be run: the devices are known to their compiler alone."""
        return self.chip is not None

    def bandwidth(self, operation: str, axes: Iterable[str], mesh: Mapping[str, int]) -> float:
        """Bytes per second that a device sends for a collective over these axes of a census: on links, or the network.

        The mesh takes the devices in their order, so that a group stays where its block of them fits: on one host of
        GPUs, in one slice of TPUs. Where it leaves, its members on one host send at once, each over its own adapter: a
        ring of theirs has so many times the network's bandwidth, if the links carry that. Who sends to one peer or to
        each has its own adapter alone.
        """
        assert self.chip
        together = self.shape[-1] if self.kind == "gpu" else prod(self.shape) * self.chip.devices
        spans = [span_of(axis, mesh) for axis in axes]
        block = max((size * stride for size, stride in spans), default=1)
        if prod(mesh.values()) <= together or together % block == 0:
            return self.chip.link_bandwidth
        within = prod(min(size, max(1, together // stride)) for size, stride in spans) if operation in RINGS else 1
        return min(self.chip.link_bandwidth, within * self.chip.network_bandwidth)

    @property
    def devices(self) -> int | None:
        """Of all its slices, as JAX counts them; ``None`` where this machine has them."""
        return prod(self.shape) * self.chip.devices * self.slices if self.chip else None

    @property
    def topology(self) -> str:
        """The topology as it is spelled: ``2x4``."""
        return "x".join(map(str, self.shape))


def read_target(name: str) -> Target:
    """A target, such as ``gpu:h200:2x8``. Raises ``ValueError`` for one that there is not, naming those there are."""
    if name in HOST:
        return Target(name, name)  # type: ignore[arg-type]
    kind, _, rest = name.partition(":")
    chip, _, shape = rest.partition(":")
    if kind not in ("gpu", "tpu"):
        raise ValueError(f"--target {name}: expected {EXAMPLES}")
    known = chips(kind)
    if chip not in known:
        raise ValueError(f"--target {name}: no {kind} is called {chip!r}; expected one of {', '.join(known)}")
    shape, counted, slices = shape.partition(":")
    dimensions = shape.count("x") + 1
    allowed = (1, 2) if kind == "gpu" else (known[chip].described["dimensions"],)
    if not TOPOLOGY.fullmatch(shape) or dimensions not in allowed:
        raise ValueError(f"--target {name}: {shape!r} is no topology of {chip}; expected {_spellings(kind, chip)}")
    if kind == "gpu" and counted:
        raise ValueError(f"--target {name}: a gpu has no slices; expected {_spellings(kind, chip)}")
    if counted and not SLICES.fullmatch(slices):
        raise ValueError(
            f"--target {name}: {slices!r} is no number of slices; expected one from 1 to 9999, as in "
            f"tpu:{chip}:{shape}:2, or tpu:{chip}:{shape} for one slice"
        )
    target = Target(name, kind, known[chip], tuple(map(int, shape.split("x"))), int(slices or 1))  # type: ignore[arg-type]
    if problem := _unmade(target, known[chip]):
        raise ValueError(f"--target {name}: {problem}")
    return target


def _unmade(target: Target, chip: Chip) -> str:
    """Why there is no topology of these sizes; empty where there can be one."""
    together = prod(target.shape) * chip.devices
    if target.kind == "tpu" and together > chip.linked:
        return (
            f"{target.topology} has {together:,} devices; expected at most {chip.linked:,}, which is a whole pod of "
            f"{chip.name}; more are several slices, as in {target.kind}:{chip.name}:TOPOLOGY:SLICES"
        )
    if together * target.slices > MOST_DEVICES:
        return f"{together * target.slices:,} devices; expected at most {MOST_DEVICES:,}"
    if target.kind == "tpu" and any(size > 1 and size % HOST_SIDE for size in target.shape[:2]):
        return (
            f"{target.topology} cannot be made of hosts of {HOST_SIDE}x{HOST_SIDE} chips; expected an even number in "
            f"each of the first two places, such as {_spellings('tpu', chip.name)}"
        )
    return ""


def _spellings(kind: str, chip: str) -> str:
    if kind == "gpu":
        return f"gpu:{chip}:8 for eight on one host, gpu:{chip}:2x8 for two hosts of eight"
    shape = "2x2x2" if chips(kind)[chip].described["dimensions"] == 3 else "2x4"
    return f"tpu:{chip}:{shape} for a slice of {prod(map(int, shape.split('x')))} chips, tpu:{chip}:{shape}:2 for two"


@cache
def chips(kind: str) -> dict[str, Chip]:
    """The known chips of a kind, ``gpu`` or ``tpu``, by name."""
    told = tomllib.loads((files(__package__) / "chips.toml").read_text(encoding="utf-8"))[kind]
    return {name: _chip(name, figures) for name, figures in told.items()}


def find_chip(name: str) -> Chip:
    """A chip of either kind. Raises ``ValueError`` for one that there is not, naming those there are."""
    known = {**chips("tpu"), **chips("gpu")}
    if name.lower() not in known:
        raise ValueError(f"{name!r} is no chip that is known here; expected one of {', '.join(known)}")
    return known[name.lower()]


def _chip(name: str, figures: dict[str, Any]) -> Chip:
    own = {field: figures.pop(field) for field in (*Chip.__dataclass_fields__,) if field in figures}
    return Chip(name=name, **own, described=figures)
