"""How long is a train step? A time counts only if the losses are right."""

from .timing import time_windows
from .window import Window


def test_step_time(ready, step, judges, benchmark, size, asked):
    """The time of K train steps, each window from the same start, each loss judged."""
    time_windows(benchmark, Window(ready, judges), size, step, asked=asked)
