"""Collectives in isolation: one per program, with an exactly known result, and bandwidth as nccl-tests define it.

    operation            S, in bytes                 busbw / algbw
    all-reduce           what each device has        2(n−1)/n
    all-gather           what each device gets       (n−1)/n
    reduce-scatter       what each device has        (n−1)/n
    all-to-all           what each device has        (n−1)/n
    collective-permute   what each device has        1

algbw = S / seconds; busbw is what a device's link carries on a ring (NVIDIA nccl-tests, doc/PERFORMANCE.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from meshproof.hlo import census

from .program import moved
from .window import STEPS, WindowError, is_ready

AXIS = "device"
FORMULA = "algbw = S / seconds, busbw = algbw × factor (NVIDIA nccl-tests, doc/PERFORMANCE.md)"


@dataclass(frozen=True)
class Operation:
    """``run`` is one device's program, ``factor`` is busbw / algbw on n devices.

    ``expected`` is the global result for inputs (n, elements), one row per device, by NumPy. ``gathers``: S is the size
    of the result, not of the input.
    """

    run: Callable[[jax.Array], jax.Array]
    expected: Callable[[np.ndarray], np.ndarray]
    factor: Callable[[int], float]
    gathers: bool = False


def scattered(x_NxE: np.ndarray) -> np.ndarray:
    """Every device's part of the sum, one row per device."""
    return x_NxE.sum(0).reshape(len(x_NxE), -1)


def exchanged(x_NxE: np.ndarray) -> np.ndarray:
    """Row i holds the i-th parts of all rows."""
    n = len(x_NxE)
    return x_NxE.reshape(n, n, -1).swapaxes(0, 1).reshape(x_NxE.shape)


def hop(x: jax.Array) -> jax.Array:
    """Every row moved on by one, round the ring."""
    n = jax.lax.axis_size(AXIS)
    return jax.lax.ppermute(x, AXIS, [(i, (i + 1) % n) for i in range(n)])


OPERATIONS = {
    "all-reduce": Operation(
        partial(jax.lax.psum, axis_name=AXIS),
        lambda x_NxE: np.broadcast_to(x_NxE.sum(0), x_NxE.shape),
        lambda n: 2 * (n - 1) / n,
    ),
    "all-gather": Operation(
        partial(jax.lax.all_gather, axis_name=AXIS, axis=1, tiled=True),
        lambda x_NxE: np.broadcast_to(x_NxE.ravel(), (len(x_NxE), x_NxE.size)),
        lambda n: (n - 1) / n,
        gathers=True,
    ),
    "reduce-scatter": Operation(
        partial(jax.lax.psum_scatter, axis_name=AXIS, scatter_dimension=1, tiled=True),
        scattered,
        lambda n: (n - 1) / n,
    ),
    "all-to-all": Operation(
        partial(jax.lax.all_to_all, axis_name=AXIS, split_axis=1, concat_axis=1, tiled=True),
        exchanged,
        lambda n: (n - 1) / n,
    ),
    "collective-permute": Operation(hop, lambda x_NxE: np.roll(x_NxE, 1, axis=0), lambda n: 1.0),
}


class CollectiveWindow:
    """K runs of one operation over all devices, S bytes of float32: whole numbers, whose sum is exact in any order."""

    def __init__(self, name: str, size: int, devices: list[jax.Device], operation: Operation | None = None) -> None:
        self.name, self.size, self.devices = name, size, devices
        self.operation = operation or OPERATIONS[name]
        self.results: list[Any] = []
        self.events: list[str] = []

    @cached_property
    def mesh(self) -> Mesh:
        """All devices, along one axis."""
        return Mesh(np.asarray(self.devices), (AXIS,), axis_types=(AxisType.Auto,))

    @cached_property
    def given(self) -> np.ndarray:
        """The inputs (n, elements), one row per device."""
        n = len(self.devices)
        elements = self.size // 4 // (n if self.operation.gathers else 1)
        return np.random.default_rng(0).integers(-8, 8, (n, elements)).astype(np.float32)

    @cached_property
    def placed(self) -> jax.Array:
        """The inputs on their devices."""
        return jax.device_put(self.given, NamedSharding(self.mesh, P(AXIS)))

    @cached_property
    def compiled(self) -> Any:
        """The program."""
        run = jax.shard_map(self.operation.run, mesh=self.mesh, in_specs=P(AXIS), out_specs=P(AXIS), check_vma=False)
        return jax.jit(run).lower(self.placed).compile()

    @cached_property
    def facts(self) -> dict[str, Any]:
        """What the program moves. Raises `WindowError` unless it is this operation once, on S bytes."""
        found = census(self.compiled.as_text(), {AXIS: len(self.devices)})
        seen = [(entry.operation, entry.executions, entry.bytes) for entry in found]
        if seen != [(self.name, 1, self.size)]:
            raise WindowError(f"{self.name} of {self.size} bytes: the compiled program has {seen or 'no collective'}")
        return moved(found)

    def run(self) -> None:
        """The timed part."""
        self.results = jax.block_until_ready([self.compiled(self.placed) for _ in range(STEPS)])

    def check(self, *_: Any) -> None:
        """Run after each timed window. Raises `WindowError` unless all is ready, none compiled, the last is right."""
        problem = ""
        if not all(map(is_ready, self.results)):
            problem = "was not waited for"
        elif self.events:
            problem = f"compiled while it was timed: {', '.join(sorted(set(self.events)))}"
        elif not np.array_equal(np.asarray(self.results[-1]), self.operation.expected(self.given)):
            problem = "does not give NumPy's result"
        if problem:
            raise WindowError(f"{self.name} of {self.size} bytes {problem}")
        self.results = []

    def bandwidths(self, seconds: float) -> dict[str, float]:
        """algbw and busbw, in bytes per second, of one operation that took ``seconds``."""
        algbw = self.size / seconds
        return {
            "algbw_bytes_per_second": algbw,
            "busbw_bytes_per_second": algbw * self.operation.factor(len(self.devices)),
        }
