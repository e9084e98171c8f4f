"""A saved run as a page for `benchmarks/results/`: ``python -m benchmarks.page RUN.json --output NAME.md``."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from statistics import quantiles
from typing import Annotated, Any

import typer

from meshproof.files import replace_text
from meshproof.timing.runs import NAME, Benchmark, Run, RunError, read_run

QUESTIONS = {
    "test_step_time": "Train steps",
    "test_forward_time": "Forward passes",
    "test_cold_compile_time": "Compilations, cold",
    "test_warm_compile_time": "Compilations, warm",
    "test_init_time": "Sharded init",
    "test_collectives": "Collectives alone",
}
WINDOWS = ("test_step_time", "test_forward_time", "test_collectives")
"""Tests whose round is a window of several runs."""

Show = Callable[[Any], str]


def scaled(unit: str) -> Show:
    """A number with the unit prefix that leaves up to three digits before the point."""

    def show(amount: float) -> str:
        for prefix in ("", "k", "M", "G"):
            if amount < 1000:
                return f"{amount:.3g} {prefix}{unit}".rstrip()
            amount /= 1000
        return f"{amount:,.4g} T{unit}"

    return show


def by_name(show: Show) -> Show:
    """Amounts by mesh axes; an unknown one is a question mark."""
    return lambda amounts: ", ".join(
        f"{name}: {'?' if amount is None else show(amount)}" for name, amount in amounts.items()
    )


COLUMNS: dict[str, tuple[str, Show]] = {
    "tokens_per_second": ("tokens/s", "{:,.0f}".format),
    "examples_per_second": ("examples/s", "{:,.0f}".format),
    "algbw_bytes_per_second": ("algbw", scaled("B/s")),
    "busbw_bytes_per_second": ("busbw", scaled("B/s")),
    "mfu": ("MFU", "{:.1%}".format),
    "communication": ("communicates", "{:.1%}".format),
    "exposed_communication": ("of it alone", "{:.1%}".format),
    "idle": ("idle", "{:.1%}".format),
    "device_seconds": ("busy on the device", scaled("s")),
    "model_flops": ("model FLOPs", scaled("")),
    "bytes_by_axis": ("moved per device, over", by_name(scaled("B"))),
    "peak_memory_bytes": ("peak memory per device", scaled("B")),
    "state_bytes": ("state per device", scaled("B")),
    "compile_seconds": ("compiled in", "{:.2f} s".format),
}
"""The columns beside a time, by their keys in the file: shown if a benchmark of the question has them."""


def page(run: Run) -> str:
    """A run in Markdown. Raises `RunError` if it has no benchmarks, or those of several machines or stacks."""
    if not run.raw.get(NAME):
        raise RunError(f"{run.path} {run.problems['the run']}")
    machine, first = run.machine, next(iter(run.benchmarks.values()))
    if any(each.stack != first.stack for each in run.benchmarks.values()):
        raise RunError(f"{run.path} is of several stacks; expected what one run saved")
    place, day = f"{machine['devices']} × {machine['device_kind']}", run.raw["datetime"][:10]
    arguments = run.raw[NAME].get("arguments")
    command = "unknown" if arguments is None else f"`{shlex.join(['pytest', *arguments])}`"
    commit = run.raw.get("commit_info") or {}
    return "\n".join(
        [
            f"# {machine.get('size', 'Times')}: {len(run.benchmarks)} benchmarks on {place}, {day}",
            "",
            f"- command: {command}",
            f"- versions: {', '.join(f'{name} {version}' for name, version in first.stack.items())}",
            f"- hardware: {place}{' (virtual)' if machine['host'] else ''}, host {machine['host'] or 'not recorded'}",
            f"- commit: {commit.get('id') or 'unknown'}{', with changes' if commit.get('dirty') else ''}",
            "- what the columns are: [docs/benchmarks.md](../../docs/benchmarks.md#beside-each-time)",
            *(f"- not measured: {name}: {reason}" for name, reason in run.problems.items()),
            *sections(run),
            "",
        ]
    )


def sections(run: Run) -> Iterator[str]:
    """A table for each question, in the order of `QUESTIONS`, by name."""
    questions = list(QUESTIONS)
    found = sorted(run.benchmarks.values(), key=lambda each: (questions.index(question_of(each)), each.name))
    for test, group in groupby(found, key=question_of):
        yield f"\n## {QUESTIONS[test]}\n"
        yield from table(test, list(group), {each["fullname"]: each["extra_info"] for each in run.raw["benchmarks"]})


def question_of(benchmark: Benchmark) -> str:
    """The name of a benchmark's test. Raises `RunError` for one outside `benchmarks/`."""
    test = benchmark.name.rpartition("::")[2].partition("[")[0]
    if test not in QUESTIONS:
        raise RunError(f"{benchmark.name} is no benchmark of the book; expected one of {', '.join(QUESTIONS)}")
    return test


def table(test: str, benchmarks: list[Benchmark], extra: Mapping[str, Any]) -> Iterator[str]:
    """One question: the time of a run with its quartiles, and the columns beside it."""
    known = [{**each.facts, **each.measured} for each in benchmarks]
    shown = [name for name in COLUMNS if any(facts.get(name) not in (None, {}) for facts in known)]
    heads = ["", "median [quartiles]", *(COLUMNS[name][0] for name in shown), "judged by"]
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    for each, facts in zip(benchmarks, known, strict=True):
        calls = each.identity["steps_per_window"] if test in WINDOWS else 1
        cells = [f"`{each.name.partition('[')[2].removesuffix(']')}`", duration(each.sample.seconds, calls)]
        cells += ["–" if facts.get(name) in (None, {}) else COLUMNS[name][1](facts[name]) for name in shown]
        yield f"| {' | '.join([*cells, extra[each.name].get('judged_by', '–')])} |"


def duration(rounds: Sequence[float], calls: int) -> str:
    """The median of a call and its quartiles, in milliseconds below a second."""
    low, middle, high = (seconds / calls for seconds in quantiles(rounds, n=4))
    factor, unit = (1, "s") if middle >= 1 else (1e3, "ms")
    return f"{factor * middle:.3g} {unit} [{factor * low:.3g}, {factor * high:.3g}]"


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    run: Annotated[Path, typer.Argument(metavar="RUN.json", help="Saved by pytest benchmarks/ --benchmark-json.")],
    output: Annotated[Path, typer.Option(help="Write the page here.")],
) -> None:
    """Write a saved run as a page of results: the command, versions, hardware and every number."""
    try:
        replace_text(output, page(read_run(run)))
    except (RunError, OSError) as error:
        typer.echo(f"benchmarks.page: {error}", err=True)
        raise typer.Exit(2) from error
    typer.echo(f"written: {output}")


if __name__ == "__main__":
    app()
