"""Processor time as of a quiet core: one that a busy machine shares does the same work in up to twice the seconds."""

import time
from collections.abc import Callable

QUIET = 0.08
"""Seconds of `fixed_work` on one core of an AMD EPYC with nothing beside it, Python 3.12, 2026-11-26."""


def fixed_work() -> float:
    """The processor time of the same work each time: numbers, text and a dict."""
    start, counted = time.process_time(), {}
    for number in range(300_000):
        counted[number % 1000] = counted.get(number % 1000, 0) + len(str(number))
    return time.process_time() - start


def quiet_seconds(measure: Callable[[], float], enough: float, tries: int = 10) -> float:
    """The least of the processor times that ``measure`` returns, each as a quiet core would take.

    Of the fixed work before and after, the faster one tells how slow the machine was. One under ``enough`` is the last.
    """
    least = float("inf")
    for _ in range(tries):
        before, seconds, after = fixed_work(), measure(), fixed_work()
        least = min(least, seconds / max(1, min(before, after) / QUIET))
        if least < enough:
            break
    return least
