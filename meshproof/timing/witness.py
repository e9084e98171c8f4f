"""Witnesses of the machine: the same small work beside every timed round, in no code that an upgrade changes."""

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
    def threads(self) -> list[ThreadPoolExecutor]:
        """One for each core, and bound to it: two that the system puts on one core say nothing of the other."""
        return [ThreadPoolExecutor(1, initializer=bind, initargs=(core,)) for core in CORES]

    def measure(self) -> dict[str, float]:
        """The seconds of each, now."""
        first = self.threads[:1]
        return {
            "one core": seconds(first, lambda: self.compress(20)),
            "all cores": seconds(self.threads, lambda: self.compress(20)),
            "memory": seconds(first, lambda: self.copy(4)),
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


def bind(core: int) -> None:
    """Keep this thread on a core, where the system can and may."""
    with suppress(AttributeError, OSError):
        os.sched_setaffinity(0, {core})


def seconds(threads: list[ThreadPoolExecutor], work: Callable[[], object]) -> float:
    """How long it takes on all of these at once."""
    start = perf_counter()
    for running in [thread.submit(work) for thread in threads]:
        running.result()
    return perf_counter() - start
