"""The command line: what a compiled program communicates, SPEC.md, and what is known to fail."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from meshproof.comparison.commands import compare
from meshproof.failing import fail
from meshproof.plots.commands import inline_benchmarks, plots
from meshproof.upgrade.commands import bisect, upgrade

if TYPE_CHECKING:
    from meshproof.hlo import Collective

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Conformance and regression suite for distributed training in JAX and Flax.",
)


expectations = typer.Typer(no_args_is_help=True, help="What is known to fail, such as suites/expectations.toml.")
app.add_typer(expectations, name="expectations")

app.command()(compare)
app.command()(upgrade)
app.command()(bisect)
app.command()(plots)

baseline = typer.Typer(no_args_is_help=True, help="What `pytest benchmarks/ --benchmark-compare` compares with.")
app.add_typer(baseline, name="baseline")


@app.callback()
def main() -> None:
    """Conformance and regression suite for distributed training in JAX and Flax."""


@app.command()
def census(
    file: Annotated[str, typer.Argument(metavar="FILE|-", help="Compiled HLO text (compiled.as_text()); - is stdin.")],
    mesh: Annotated[str, typer.Option(help="Axes and sizes in the order of the mesh, such as data=2,model=4.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Print the collectives of a compiled program: operation, mesh axes, executions, tensors and bytes per step.

    Reads text of any backend: CPU, GPU or TPU. Bytes are per device and step. A dash stands for unknown: the text does
    not tell how often a loop runs, or which branch is taken.
    """
    from meshproof.hlo import HloError
    from meshproof.hlo import census as take_census

    axes = _read_mesh(mesh)
    text = _read_text(file)
    try:
        found = take_census(text, axes)
    except HloError as error:
        fail(f"{'standard input' if file == '-' else file}: {error}".replace("\n", " | "))
    if as_json:
        typer.echo(json.dumps({"collectives": [asdict(collective) for collective in found]}, indent=2))
    else:
        _print_table(found)


@app.command()
def spec(
    check: Annotated[bool, typer.Option("--check", help="Write nothing; exit 1 where SPEC.md is out of date.")] = False,
) -> None:
    """Write SPEC.md in the current checkout, from the clauses that its suites declare."""
    from meshproof.spec import COMMAND, SpecError, render_spec

    path = Path("SPEC.md")
    try:
        text = render_spec(Path())
    except SpecError as error:
        fail(str(error))
    if not check:
        path.write_text(text, encoding="utf-8")
    elif not path.exists() or path.read_text(encoding="utf-8") != text:
        typer.echo(f"meshproof: SPEC.md is out of date; `{COMMAND}` updates it", err=True)
        raise typer.Exit(1)


@app.command()
def html(
    report: Annotated[Path, typer.Argument(metavar="REPORT.json", help="From a run with --conformance-report.")],
    output: Annotated[Path | None, typer.Option(help="Write this; default the report's name with .html.")] = None,
    benchmarks: Annotated[
        list[Path] | None, typer.Option(metavar="BENCH.json", help="Draw these saved benchmarks too; repeatable.")
    ] = None,
) -> None:
    """Write a report as one HTML page that needs nothing outside itself."""
    from meshproof.files import replace_text
    from meshproof.html import render_page
    from meshproof.report import ReportError, read_report

    path = output or report.with_suffix(".html")
    if path in (report, *(benchmarks or ())):
        fail(f"{path} would be overwritten by its page: name another --output")
    try:
        pictures = inline_benchmarks(benchmarks) if benchmarks else []
        replace_text(path, render_page(read_report(report), pictures=pictures))
    except (ReportError, OSError) as error:
        fail(str(error))
    typer.echo(f"{path} is the page of {report}")


@expectations.command()
def update(
    report: Annotated[Path, typer.Argument(metavar="REPORT.json", help="From a run with --conformance-report.")],
    file: Annotated[Path | None, typer.Option(help="Rewrite this; default suites/expectations.toml.")] = None,
) -> None:
    """Rewrite a file of expectations from the report of a run of all suites.

    Entries whose tests still fail stay, with their reasons and comments. Those whose tests pass go; where some pass,
    the others get an entry each. What fails without being expected is added, and must be given a reason and a link
    before the file is read again. Entries for other versions, targets or platforms are not touched.
    """
    from meshproof.cases import REFERENCE
    from meshproof.expectations import ExpectationError
    from meshproof.expectations.plugin import KNOWN
    from meshproof.expectations.updating import update as rewrite
    from meshproof.report import ReportError, read_report

    try:
        known = read_report(report)
        if file is None and known["implementation"] != REFERENCE:
            fail(f"{report} is of --impl {known['implementation']}, {KNOWN} of {REFERENCE}: name a --file of your own")
        changes = rewrite(known, file or Path(KNOWN))
    except (ReportError, ExpectationError, OSError) as error:
        fail(str(error))
    typer.echo("\n".join(changes) or f"{file or KNOWN} is as the report says")


@app.command()
def ab(
    old: Annotated[str, typer.Option("--from", help="Requirements such as jax==0.10.2,flax==0.12.8, or a venv.")],
    new: Annotated[str, typer.Option("--to", help="The same of the other stack.")],
    paths: Annotated[list[str] | None, typer.Argument(metavar="[PATH…]", help="Default: benchmarks.")] = None,
    select: Annotated[str, typer.Option("-k", help="As pytest's -k.")] = "",
    old_python: Annotated[str | None, typer.Option("--from-python", help="A version or a path.")] = None,
    new_python: Annotated[str | None, typer.Option("--to-python", help="A version or a path.")] = None,
    pre: Annotated[bool, typer.Option("--pre", help="Admit pre-releases.")] = False,
    rounds: Annotated[int, typer.Option(min=8, help="Of each benchmark, in each process.")] = 40,
    sessions: Annotated[int, typer.Option(min=1, help="Pairs of fresh processes; 3 times as many tell apart.")] = 2,
    target: Annotated[str | None, typer.Option(help="As pytest's --target.")] = None,
    impl: Annotated[str | None, typer.Option(help="As pytest's --impl.")] = None,
    size: Annotated[str | None, typer.Option(help="As pytest benchmarks/ --size.")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write every round here.")] = None,
) -> None:
    """Time two stacks in turn on this machine: is one of them slower?

    One process in each environment runs the same benchmarks, round by round in the order A B B A, and what the
    machine does meanwhile does it to both. Exit code 1: a benchmark is slower, failed, or is on one side only. Run
    it where benchmarks/ is.
    """
    from meshproof.environments import StackError, open_environment
    from meshproof.files import check_writable, replace_text
    from meshproof.timing.ab import AbError, as_json, run_ab
    from meshproof.timing.summary import write_comparisons

    say = partial(typer.echo, err=True)
    try:
        if json_file:
            check_writable(json_file)
        environments = [open_environment(*each, pre, say) for each in ((old, old_python), (new, new_python))]
        options = {"-k": select, "--target": target, "--impl": impl, "--size": size}
        given = [word for option, value in options.items() if value for word in (option, value)]
        found = run_ab(environments, [*(paths or ["benchmarks"]), *given], rounds, sessions, say)
    except (StackError, AbError, ValueError, OSError) as error:
        fail(str(error))
    comparisons = [each.comparison for each in found]
    write_comparisons(comparisons, typer.echo, "more --rounds tell more, on a quieter machine")
    if json_file:
        replace_text(json_file, json.dumps(as_json(environments, found), indent=1))
    raise typer.Exit(any(comparison.failed for comparison in comparisons))


@baseline.command()
def promote(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN.json…", help="Saved by pytest benchmarks/.")],
    folder: Annotated[Path, typer.Option(help="Where baselines are.")] = Path("benchmarks/baselines"),
    accept: Annotated[list[str] | None, typer.Option(metavar="KIND", help="Repeatable; the refusal names it.")] = None,
) -> None:
    """Make a run, or several of the same code, the baseline of the machine it was timed on.

    Refused where a test of it failed, where it did not come to its end, and, unless accepted by name, where it is worse
    than the baseline that stands. Several runs show how much this machine differs from run to run: three are better
    than one.
    """
    from meshproof.timing.baselines import promote as make_baseline
    from meshproof.timing.baselines import read_baseline
    from meshproof.timing.runs import RunError

    try:
        made = read_baseline(make_baseline(runs, folder, accept or ()))
    except (RunError, OSError) as error:
        fail(str(error))
    typer.echo(f"{made.path} is the baseline now, of {made.reach}")


@baseline.command()
def show(folder: Annotated[Path, typer.Option(help="Where baselines are.")] = Path("benchmarks/baselines")) -> None:
    """Print each baseline: its machine, its stack, and the time of every benchmark in every run."""
    from meshproof.timing.baselines import read_baselines
    from meshproof.timing.runs import RunError
    from meshproof.timing.summary import write_baseline

    try:
        found = read_baselines(folder)
        for each in found:
            write_baseline(each, typer.echo)
    except RunError as error:
        fail(str(error))
    if not found:
        fail(f"there is no baseline in {folder}; `meshproof baseline promote RUN.json` makes one")


def _read_mesh(text: str) -> dict[str, int]:
    axes: dict[str, int] = {}
    for part in text.split(","):
        name, _, size = (word.strip() for word in part.partition("="))
        if not name or not size.isdecimal() or int(size) < 1:
            fail(
                f"--mesh {text!r}: {part!r} is no axis; expected name=size with a size from 1 on, as in data=2,model=4"
            )
        if name in axes:
            fail(f"--mesh {text!r}: axis {name!r} is named twice; expected distinct axes, as in data=2,model=4")
        axes[name] = int(size)
    return axes


def _read_text(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        fail(f"cannot read {file!r}: {reason}; expected a file with the output of compiled.as_text(), or - for stdin")


def _print_table(found: Sequence[Collective]) -> None:
    from rich.console import Console
    from rich.table import Table

    if not found:
        typer.echo("no communication")
        return
    table = Table(caption="per device and step; – is unknown")
    for heading in ("operation", "axes"):
        table.add_column(heading)
    for heading in ("executions", "tensors", "bytes"):
        table.add_column(heading, justify="right")
    for heading in ("dtype", "realized as", "phase"):
        table.add_column(heading)
    for entry in found:
        amounts = (
            "–" if number is None else f"{number:,}" for number in (entry.executions, entry.tensors, entry.bytes)
        )
        table.add_row(entry.operation, ", ".join(entry.axes), *amounts, entry.dtype, entry.realized_as, entry.phase)
    Console(width=None if sys.stdout.isatty() else 160).print(table)
