"""`meshproof plots`, and the pictures of `meshproof html --benchmarks`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from meshproof.commands.failing import fail

if TYPE_CHECKING:
    from meshproof.planning.document import Planned


class Format(StrEnum):
    """The file format of a picture."""

    SVG = "svg"
    PNG = "png"


def plots(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE.json…", help="Saved benchmarks, conformance reports, plans.")
    ],
    output: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder for the pictures.")] = Path("plots"),
    kind: Annotated[Format, typer.Option("--format", help="File format of the pictures.")] = Format.SVG,
) -> None:
    """Draw loss curves, speed-ups, times against batch and mesh, the efficiency of pipelines, and plans.

    Reads what `pytest benchmarks/ --benchmark-json` and `pytest suites/ --conformance-report` write, and what
    `meshproof plan --json` prints, and says why if a picture cannot be drawn. Each picture carries the numbers that it
    draws. Exit code 2: none can.
    """
    with _failing():
        from meshproof.files import check_folder_writable, replace_bytes
        from meshproof.plots.drawing import render
        from meshproof.plots.pictures import draw_files

        check_folder_writable(output, "--output")
        pictures, remarks = draw_files(files)
        made = [(output / f"{each.name}.{kind}", each, render(each, kind)) for each in pictures if each.figure]
        output.mkdir(parents=True, exist_ok=True)
        for path, picture, content in made:
            replace_bytes(path, content)
            typer.echo(f"{path}: {picture.question}")
            for remark in picture.remarks:
                typer.echo(f"  {remark}")
        for remark in (*remarks, *(remark for each in pictures if not each.figure for remark in each.remarks)):
            typer.echo(remark)


def inline_benchmarks(files: Sequence[Path]) -> list[tuple[str, str | None, tuple[str, ...]]]:
    """For the page: each question, its picture as an ``svg`` element or ``None``, and remarks on what is left out.

    Ends the command if nothing can be drawn.
    """
    with _failing():
        from meshproof.plots.inline import inline
        from meshproof.plots.pictures import draw_benchmarks

        pictures, remarks = draw_benchmarks(files)
        found = [(each.question, inline(each) if each.figure else None, each.remarks) for each in pictures]
        return [*found, ("What is left out", None, tuple(remarks))] if remarks else found


def inline_plan(planned: Planned) -> list[tuple[str, str | None, tuple[str, ...]]]:
    """For the page of a plan: as `inline_benchmarks`."""
    with _failing():
        from meshproof.plots.inline import inline
        from meshproof.plots.plans import draw_plan

        pictures = draw_plan(planned)
        return [(each.question, inline(each) if each.figure else None, each.remarks) for each in pictures]


@contextmanager
def _failing() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        fail("pictures need matplotlib, which is not installed: pip install 'meshproof[plots]'")
    except (ValueError, OSError) as error:
        fail(str(error))
