"""Comparisons and baselines as tables."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from statistics import median

from rich.console import Console
from rich.table import Table
from rich.text import Text

from meshproof.timing.baselines import Baseline
from meshproof.timing.comparison import Comparison


def write_baseline(baseline: Baseline, write: Callable[[str], object]) -> None:
    """Write the machine, the stack, the time that counts as slower, and the median seconds of each run."""
    runs = baseline.runs
    write(f"{baseline.path}: {', '.join(f'{key} {value}' for key, value in baseline.machine.items())}")
    write(", ".join(f"{key} {value}" for key, value in baseline.of(baseline.names[0])[0].stack.items()))
    write(f"baseline {baseline.reach}")
    table = Table("benchmark", *(run.raw.get("datetime", "") for run in runs))
    for name in baseline.names:
        medians = (f"{median(benchmark.sample.seconds):.4g} s" for benchmark in baseline.of(name))
        table.add_row(*map(Text, (name.rpartition("::")[2], *medians)))
    write(_text(table))


def write_comparisons(comparisons: Sequence[Comparison], write: Callable[[str], object], advice: str) -> None:
    """Write a row per benchmark, then details, counts, and ``advice`` if a verdict is *cannot tell*."""
    table = Table()
    table.add_column("benchmark", overflow="fold")
    for heading in ("was", "is", "machine", "ratio"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    by_device = any(comparison.on_device for comparison in comparisons)
    if by_device:
        table.add_column("on a device", justify="right", no_wrap=True)
    for comparison in comparisons:
        was, now = (f"{seconds:.4g} s" for seconds in comparison.seconds) if comparison.seconds else ("–", "–")
        machine = "{:.2f}–{:.2f}×".format(*comparison.machine) if comparison.machine else "–"
        name, ratio = comparison.name.rpartition("::")[2], str(comparison.ratio or "–")
        on_device = [str(comparison.on_device or "–")] if by_device else []
        table.add_row(*map(Text, (name, was, now, machine, ratio, comparison.outcome, *on_device)))
    write(_text(table))
    for comparison in comparisons:
        if comparison.details:
            write(str(comparison))
    counts = Counter(comparison.outcome for comparison in comparisons)
    write(", ".join(f"{count} {outcome}" for outcome, count in counts.items()))
    if counts["cannot tell"]:
        write(f"cannot tell: the interval includes both a change and none; {advice}")


def _text(table: Table) -> str:
    console = Console(width=None if sys.stdout.isatty() else 160)
    with console.capture() as capture:
        console.print(table)
    return capture.get().rstrip()
