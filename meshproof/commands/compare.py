"""`meshproof compare`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from meshproof.commands.failing import fail

CLASSES = "regressed, gone, changed, new, improved"

FailOn = Annotated[str, typer.Option(metavar="CLASS,…", help=f"What exits with 1: {CLASSES}.")]


def compare(
    old: Annotated[Path, typer.Argument(metavar="OLD.json", help="From a run with --conformance-report.")],
    new: Annotated[Path, typer.Argument(metavar="NEW.json", help="The same of the other stack.")],
    fail_on: FailOn = "regressed",
    json_file: Annotated[Path | None, typer.Option("--json", help="Write every difference here.")] = None,
    markdown_file: Annotated[Path | None, typer.Option("--markdown", help="For a pull request's comment.")] = None,
    junit_file: Annotated[Path | None, typer.Option("--junit", help="For a CI server.")] = None,
) -> None:
    """Compare two runs of the suites, fact by fact: what regressed, changed, improved, is new, or is gone?

    Exit code 0: nothing regressed. 1: something did. 2: it cannot be told, because the devices differ, a run did not
    finish, or facts are missing; or a report cannot be read.
    """
    from meshproof.comparison import compare as compare_reports
    from meshproof.comparison.output import junit, markdown, write_table
    from meshproof.files import check_apart, check_json, check_writable, replace_text
    from meshproof.report.document import read_report

    try:
        classes = read_classes(fail_on)
        outputs = {"--json": json_file, "--markdown": markdown_file, "--junit": junit_file}
        check_apart(outputs, (old, new))
        for option, path in outputs.items():
            if path:
                check_writable(path, option)
        if json_file:
            check_json(json_file, "--json")
        comparison = compare_reports(read_report(old), read_report(new))
        write_table(comparison, typer.echo)
        if json_file:
            replace_text(json_file, json.dumps(comparison.as_json(), indent=1))
        if markdown_file:
            replace_text(markdown_file, markdown(comparison))
        if junit_file:
            replace_text(junit_file, junit(comparison, classes))
    except (ValueError, OSError) as error:
        fail(str(error))
    raise typer.Exit(comparison.exit_code(classes))


def read_classes(text: str) -> list[str]:
    """The classes that ``--fail-on`` names. Raises `ValueError` if one is no class."""
    named = [word.strip() for word in text.split(",") if word.strip()]
    for name in named or [""]:
        if name not in CLASSES.split(", "):
            raise ValueError(f"--fail-on {text!r}: {name!r} is no class; expected some of {CLASSES}")
    return named
