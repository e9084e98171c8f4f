"""JAX's side of a comparison: the windows that `pytest benchmarks/` times, and the start for the other side."""

from __future__ import annotations

import os
import time
from functools import cached_property
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import jax

from meshproof.observing.members import canonical
from meshproof.observing.state import host

from ..judges import Judge
from ..record import machine, matmul_precision, stack
from ..window import STEPS, Window
from .gpt_case import find_case
from .handover import write_handover

CUDA_PACKAGES = ("jax-cuda", "nvidia-cublas", "nvidia-cuda-runtime", "nvidia-cudnn", "triton")


class JaxSide:
    """The book's step of a size on one device of the target. Starts the backend, without preallocated memory."""

    def __init__(self, size: str, target: str) -> None:
        os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
        if target == "cpu":
            jax.config.update("jax_platforms", "cpu")
        self.case = find_case(size, target)
        precision = matmul_precision(self.case)
        jax.config.update("jax_default_matmul_precision", None if precision == "default" else precision)

    @cached_property
    def timed(self) -> Window:
        """The windows."""
        return Window(self.case)

    def hand_over(self, path: Path) -> Judge:
        """Write the start values and the batches; returns the judge of both sides' losses."""
        parameters = host(canonical(self.case.strategy.parameters(self.timed.start()), "parameters"))
        write_handover(path, parameters, self.timed.host_batches)
        return self.timed.judge

    def warm_up(self, judge: Judge) -> None:
        """Run windows until nothing compiles any more. Raises ``WindowError``."""
        self.timed.judge = judge
        self.timed.warm_up()

    def window(self) -> dict[str, Any]:
        """The seconds of a step, the losses, and that of the state left behind. Raises ``WindowError``."""
        arguments, _ = self.timed.set_up()
        start = time.perf_counter()
        self.timed.run(*arguments)
        seconds = (time.perf_counter() - start) / STEPS
        self.timed.check()
        return {"seconds": seconds, "losses": self.timed.losses}

    def facts(self) -> dict[str, Any]:
        """Versions, the machine, and the most bytes that JAX held on the device (``None``: unknown)."""
        stats = jax.devices()[0].memory_stats() or {}
        found = {each.name.lower(): each.version for each in distributions()}
        cuda = {name: version for name, version in found.items() if name.startswith(CUDA_PACKAGES)}
        return {
            "versions": stack() | dict(sorted(cuda.items())),
            "machine": machine(),
            "peak_memory_bytes": stats.get("peak_bytes_in_use"),
        }
