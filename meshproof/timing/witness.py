"""Witnesses of the machine: the same small work beside every timed round, in code that no upgrade changes."""

from __future__ import annotations

import os
import random
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property
from time import perf_counter

CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)


class Witnesses:
    """Three measures of a machine: its clock, its free cores, its memory. About 20 ms in all."""

    @cached_property
    def text(self) -> bytes:
        """80 kB to compress."""
        return random.Random(0).randbytes(2_000) * 40  # noqa: S311 - no secret

    @cached_property
    def blocks(self) -> tuple[memoryview, memoryview]:
        """Source and target of the copy: larger than a core's cache, and reused, as the kernel clears fresh memory."""
        return memoryview(bytearray(16_000_000)), memoryview(bytearray(16_000_000))

    @cached_property
    def threads(self) -> list[ThreadPoolExecutor]:
        """One thread per core, bound to it: else two may share a core and say nothing of the other."""
        return [ThreadPoolExecutor(1, initializer=bind, initargs=(core,)) for core in CORES]

    def measure(self) -> dict[str, float]:
        """The seconds of each witness, now."""
        first = self.threads[:1]
        return {
            "one core": seconds(first, lambda: self.compress(20)),
            "all cores": seconds(self.threads, lambda: self.compress(20)),
            "memory": seconds(first, lambda: self.copy(4)),
        }

    def compress(self, times: int) -> None:
        """Work for one core, without Python's global lock."""
        for _ in range(times):
            zlib.compress(self.text)

    def copy(self, times: int) -> None:
        """Work for the memory: one copy."""
        source, target = self.blocks
        for _ in range(times):
            target[:] = source


def bind(core: int) -> None:
    """Bind this thread to a core, if the system can and may."""
    with suppress(AttributeError, OSError):
        os.sched_setaffinity(0, {core})


def seconds(threads: list[ThreadPoolExecutor], work: Callable[[], object]) -> float:
    """The seconds that this work takes on all these threads at once."""
    start = perf_counter()
    for running in [thread.submit(work) for thread in threads]:
        running.result()
    return perf_counter() - start
