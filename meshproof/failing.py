"""How a command ends that cannot do what it was asked."""

from __future__ import annotations

from typing import NoReturn

import typer


def fail(problem: str) -> NoReturn:
    """Say what is wrong in one line, and end with exit code 2."""
    typer.echo(f"meshproof: {problem}", err=True)
    raise typer.Exit(2)
