"""Witnesses of the machine: the same small work beside every timed round, in no code that an upgrade changes."""

from __future__ import annotations

import os
import random
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from time import perf_counter

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Witnesses:
    """Three ways in which a machine gets slower: its clock, its free cores, and its memory. About 20 ms in all."""

    @cached_property
    def text(self) -> bytes:
        """What is compressed."""
        return random.Random(0).randbytes(2_000) * 40  # noqa: S311 - no secret

    @cached_property
    def blocks(self) -> tuple[memoryview, memoryview]:
        """What is copied and where to, larger than a core's cache; no fresh memory, which the kernel clears first."""
        return memoryview(bytearray(16_000_000)), memoryview(bytearray(16_000_000))

    @cached_property
    def threads(self) -> ThreadPoolExecutor:
        """As many as there are cores."""
        return ThreadPoolExecutor(CORES)

    def measure(self) -> dict[str, float]:
        """The seconds of each, now."""
        return {
            "one core": seconds(lambda: self.compress(20)),
            "all cores": seconds(lambda: list(self.threads.map(self.compress, [20] * CORES))),
            "memory": seconds(lambda: self.copy(4)),
        }

    def compress(self, times: int) -> None:
        """Work for one core, outside Python's lock."""
        for _ in range(times):
            zlib.compress(self.text)

    def copy(self, times: int) -> None:
        """Work for the memory."""
        source, target = self.blocks
        for _ in range(times):
            target[:] = source


def seconds(work: Callable[[], object]) -> float:
    """How long it takes."""
    start = perf_counter()
    work()
    return perf_counter() - start
