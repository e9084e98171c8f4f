"""Whether a step fits on its devices, before it is run; if not, which size does."""

from __future__ import annotations

import os
import warnings
from math import prod
from typing import Any

import jax

from meshproof.cases import Case, load_cases

from .program import Program, abstract_state, compile_program
from .sizes import SIZES, size_of


class DoesNotFitError(Exception):
    """A step needs more memory than its devices have."""


def compile_fitting(case: Case, implementation: str, batch: Any) -> Program | None:
    """The step, compiled for abstract shapes: no array is made. ``None`` if it cannot be lowered so.

    Raises `DoesNotFitError`, which names the bytes it needs, the bytes a device has, and a size that fits. Warns if the
    device does not report its memory.
    """
    program, held, limit = None, state_bytes(case), device_bytes()
    if limit is None:
        kind = jax.devices()[0].device_kind
        warnings.warn(f"{kind} does not tell how much memory it has: whether a step fits is unknown", stacklevel=2)
        return compile_abstract(case, batch)
    if held <= limit:
        program = compile_abstract(case, batch)
        held = (program and program.needed_bytes) or held
    if held > limit:
        raise DoesNotFitError(
            f"{case.id} needs {held:,} bytes on each device{'' if program else ' for its state alone'}, "
            f"{jax.devices()[0].device_kind} has {limit:,}; {advice(case, implementation, limit)}"
        )
    return program


def device_bytes() -> int | None:
    """Bytes that one device has for JAX: its own limit, or a virtual device's equal share of the host's memory.

    ``None`` for an accelerator that does not report its memory.
    """
    device = jax.devices()[0]
    stats = device.memory_stats() or {}
    if "bytes_limit" in stats:
        return int(stats["bytes_limit"])
    if device.platform != "cpu":
        return None
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // jax.local_device_count()


def state_bytes(case: Case) -> int:
    """The bytes of a state on each device, from its shapes; 0 if the strategy does not give them."""
    return sum(
        prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize
        for leaf in jax.tree.leaves(abstract_state(case))
        if not jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    )


def compile_abstract(case: Case, batch: Any) -> Program | None:
    """The step, compiled for the shapes of a state."""
    state = abstract_state(case)
    return None if state is None else compile_program(case, "train_step", state, batch)


def advice(case: Case, implementation: str, limit: int) -> str:
    """The largest size below this one that has the same strategy and model on the same mesh, and fits."""
    sizes, asked = list(SIZES)[1:], size_of(implementation)
    for size in reversed(sizes[: sizes.index(asked)] if asked in sizes else []):
        for other in load_cases(SIZES[size], (case.target,)):
            if other.id == case.id and state_bytes(other) <= limit:
                strategy: Any = other.strategy
                program = compile_abstract(other, strategy.shard_batch(next(iter(strategy.batches(1)))))
                if program and (program.needed_bytes or limit + 1) <= limit:
                    return f"--size {size} fits"
    return "nothing smaller is known to fit: take more devices, or a smaller model or batch"
