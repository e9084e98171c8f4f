"""`meshproof census`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from meshproof.commands.failing import fail

if TYPE_CHECKING:
    from meshproof.hlo import Collective


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
        typer.echo(json.dumps({"collectives": [collective.recorded() for collective in found]}, indent=2))
    else:
        _print_table(found)


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
    for heading in ("executions", "tensors", "bytes", "on the wire"):
        table.add_column(heading, justify="right")
    for heading in ("dtype", "realized as", "phase"):
        table.add_column(heading)
    for entry in found:
        numbers = (entry.executions, entry.tensors, entry.bytes, entry.wire_bytes)
        amounts = ("–" if number is None else f"{number:,}" for number in numbers)
        table.add_row(entry.operation, ", ".join(entry.axes), *amounts, entry.dtype, entry.realized_as, entry.phase)
    Console(width=None if sys.stdout.isatty() else 160).print(table)
