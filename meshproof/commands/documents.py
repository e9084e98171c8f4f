"""`meshproof spec`, `meshproof html` and `meshproof expectations`: documents made from suites and reports."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from meshproof.commands.failing import fail
from meshproof.commands.plots import inline_benchmarks

expectations = typer.Typer(
    no_args_is_help=True, help="Files of what is known to fail, such as suites/expectations.toml."
)


def spec(
    check: Annotated[bool, typer.Option("--check", help="Write nothing; exit 1 if SPEC.md is out of date.")] = False,
) -> None:
    """Write SPEC.md in the current checkout, from the clauses of its suites."""
    from meshproof.judging.spec import COMMAND, SpecError, render_spec

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


def html(
    report: Annotated[Path, typer.Argument(metavar="REPORT.json", help="From a run with --conformance-report.")],
    output: Annotated[Path | None, typer.Option(help="The page; default: the report's name with .html.")] = None,
    benchmarks: Annotated[
        list[Path] | None, typer.Option(metavar="BENCH.json", help="Draw these saved benchmarks too; repeatable.")
    ] = None,
) -> None:
    """Write a report as one self-contained HTML page."""
    from meshproof.files import check_apart, check_writable, replace_text
    from meshproof.html import render_page
    from meshproof.report.document import read_report

    path = output or report.with_suffix(".html")
    try:
        check_apart({"--output": path}, (report, *(benchmarks or ())))
        check_writable(path, "--output")
        pictures = inline_benchmarks(benchmarks) if benchmarks else []
        replace_text(path, render_page(read_report(report), pictures=pictures))
    except (ValueError, OSError) as error:
        fail(str(error))
    typer.echo(f"written: {path}")


@expectations.command()
def update(
    report: Annotated[Path, typer.Argument(metavar="REPORT.json", help="From a run with --conformance-report.")],
    file: Annotated[Path | None, typer.Option(help="The file; default: suites/expectations.toml.")] = None,
) -> None:
    """Rewrite a file of expectations from the report of a run of all suites.

    Entries whose tests still fail stay, with their reasons and comments. Entries whose tests pass are removed; if only
    some of them pass, the others get an entry each. Unexpected failures are added: give them a reason and a link before
    the next run, which refuses the file without. Entries for other versions, targets or platforms are not touched.
    """
    from meshproof.cases import REFERENCE
    from meshproof.expectations.plugin import KNOWN
    from meshproof.expectations.updating import update as rewrite
    from meshproof.files import check_writable
    from meshproof.report.document import read_report

    try:
        known = read_report(report)
        if file is None and known["implementation"] != REFERENCE:
            fail(f"{report} is of --impl {known['implementation']}, {KNOWN} of {REFERENCE}: name a --file of your own")
        if file is None and not Path(KNOWN).parent.is_dir():
            fail(
                f"there is no {KNOWN} here to rewrite: name a --file of your own, for `meshproof check --expectations`"
            )
        path = file or Path(KNOWN)
        check_writable(path, "--file")
        changes = rewrite(known, path)
    except (ValueError, OSError) as error:
        fail(str(error))
    nothing = (
        "nothing to change" if path.exists() else "there is no such file, and no unexpected failure to begin it with"
    )
    typer.echo("\n".join(changes) or f"{path}: {nothing}")
