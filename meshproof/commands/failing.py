"""How a command ends that cannot do what it was asked."""

from __future__ import annotations

from typing import NoReturn

import typer

INTERRUPTED = 130


def fail(problem: str, code: int = 2) -> NoReturn:
    """Say what is wrong in one line, and end with an exit code."""
    typer.echo(f"meshproof: {problem}", err=True)
    raise typer.Exit(code)
