"""The progress of runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

STEP = 25
"""Percent between lines in a log, which cannot redraw a bar."""


@contextmanager
def show_progress() -> Iterator[Callable[[str, int], None]]:
    """A function of a side and its percent: a bar per side in a terminal, a line per `STEP` percent in a log."""
    console = Console(stderr=True)
    percent_done = TextColumn("{task.percentage:>3.0f}%")
    columns = (TextColumn("{task.description}"), BarColumn(), percent_done, TimeElapsedColumn())
    bars = Progress(*columns, console=console)
    known: dict[str, TaskID] = {}
    told: dict[str, int] = {}

    def show(name: str, percent: int) -> None:
        if console.is_terminal:
            if name not in known:
                known[name] = bars.add_task(f"suites on --{name}", total=100)
            bars.update(known[name], completed=percent)
        elif percent >= told.get(name, 0) + STEP or name not in told:
            told[name] = percent
            console.print(f"suites on --{name}: {percent}%")

    if not console.is_terminal:
        yield show
        return
    with bars:
        yield show
