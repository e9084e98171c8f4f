"""What is saved beside a time: ``identity``, ``facts``, ``measured``, ``stack``, ``formulas``.

Two times may be compared only if all of ``identity`` is equal. ``facts`` are compared exactly. ``measured`` follows
from the time, or is noisy.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import numpy as np
from cpuinfo import get_cpu_info

from meshproof.cases import Case, has_member
from meshproof.measures.pipeline_schedules import count
from meshproof.observing.stack import versions

from . import peaks
from .program import Program
from .window import STEPS

STACK = ("jax", "jaxlib", "flax", "optax", "python")


def matmul_precision(case: Case) -> str:
    """A context in which float32 products have float32 precision, as in the suites; narrower dtypes have only one."""
    return "float32" if case.contract.compute_dtype == "float32" else "default"


def machine() -> dict[str, Any]:
    """The devices, and the host's CPU if they are virtual. Starts the JAX backend."""
    platform = jax.default_backend()
    return {
        "platform": platform,
        "device_kind": jax.devices()[0].device_kind,
        "devices": jax.device_count(),
        "host": cpu_model() if platform == "cpu" else None,
    }


@cache
def cpu_model() -> str:
    """The model of the host's CPU and the number of its threads."""
    info = get_cpu_info()
    return f"{info.get('brand_raw', info.get('arch', 'unknown'))} × {info.get('count')}"


def identity(case: Case, size: str) -> dict[str, Any]:
    """Everything that must be equal for two times to be comparable."""
    return {
        **machine(),
        "strategy": case.strategy.name,
        "framework": case.strategy.framework,
        "mesh": case.mesh,
        "dtype": case.contract.compute_dtype,
        "model": f"{case.strategy.model}/{size}",
        "size": size,
        "variant": getattr(case.strategy, "variant", ""),
        "batch_size": getattr(case.strategy, "batch_size", None),
        "pipeline": pipeline(case),
        "matmul_precision": matmul_precision(case),
        "steps_per_window": STEPS,
    }


def pipeline(case: Case) -> dict[str, int] | None:
    """Stages, microbatches and chunks per stage, counted from the schedule; ``None`` if it is no pipeline.

    Also ``has_weights``, if weight gradients have slots of their own.
    """
    if not has_member(case.strategy, "schedule"):
        return None
    counts = count(case.strategy.schedule)  # type: ignore[attr-defined]
    shape = {"stages": counts.stages, "microbatches": counts.microbatches, "chunks": counts.chunks}
    return shape | ({"has_weights": True} if counts.has_weights else {})


def stack() -> dict[str, str | None]:
    """The versions of the stack that is timed."""
    return {name: version for name, version in versions().items() if name in STACK}


def model_flops(case: Case, member: str) -> tuple[float | None, str | None]:
    """The model FLOPs of a call, and their formula; ``None`` if the strategy gives none, or the call needs none."""
    strategy: Any = case.strategy
    if not has_member(strategy, "model_flops"):
        return None, None
    known = strategy.model_flops
    return {"train_step": known.step, "loss": known.forward}.get(member), known.formula


def throughput(batch: Any, seconds: float) -> dict[str, float]:
    """Examples per second; tokens per second if the inputs are integers (B, T)."""
    first = np.asarray(next(iter(batch.values())))
    if first.ndim == 2 and np.issubdtype(first.dtype, np.integer):
        return {"tokens_per_second": first.size / seconds}
    return {"examples_per_second": len(first) / seconds}


def before(case: Case, size: str, member: str, program: Program | None) -> dict[str, Any]:
    """Everything that is known before the first time is taken."""
    flops, formula = model_flops(case, member)
    return {
        "identity": identity(case, size),
        "facts": (program.facts if program else {}) | {"model_flops": flops},
        "measured": {"compile_seconds": program.compile_seconds if program else None},
        "stack": stack(),
        "formulas": {"model_flops": formula, "mfu": peaks.FORMULA},
    }


def rates(case: Case, member: str, batch: Any, seconds: float) -> dict[str, float | None]:
    """The rates that follow from the seconds of one call."""
    kind, dtype = jax.devices()[0].device_kind, case.contract.compute_dtype
    mfu = peaks.utilisation(model_flops(case, member)[0], seconds, case.devices, kind, dtype)
    return throughput(batch, seconds) | {"mfu": mfu}
