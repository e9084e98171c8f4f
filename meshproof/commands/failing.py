"""How a command ends with an error."""

from __future__ import annotations

from typing import NoReturn

import typer

INTERRUPTED = 130


def fail(problem: str, code: int = 2) -> NoReturn:
    """Print ``meshproof: problem`` to stderr and exit with ``code``."""
    typer.echo(f"meshproof: {problem}", err=True)
    raise typer.Exit(code)
