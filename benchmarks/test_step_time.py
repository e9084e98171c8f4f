"""How long is a train step? The steps that the suites judge, timed, and only where their numbers are right."""

from .timing import time_windows
from .window import Window


def test_step_time(ready, step, judges, benchmark, size):
    """The time of K train steps, each window from the same start, and each loss held to its judge."""
    time_windows(benchmark, Window(ready, judges), size, step)
