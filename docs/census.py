"""What `meshproof census` prints, for docs/census.md."""

from __future__ import annotations

from typer.testing import CliRunner

from meshproof.cli import app

COMMAND = "meshproof census tests/unit/hlo/fixtures/gpu-0.12.0.1-scanned_layers.hlo --mesh data=2,model=4"
WIDTH = "125"


def shown() -> str:
    """The command and its table. Raises ``RuntimeError`` where it fails."""
    result = CliRunner().invoke(app, COMMAND.split()[1:], env={"COLUMNS": WIDTH})
    if result.exit_code:
        raise RuntimeError(f"{COMMAND} ended with {result.exit_code}:\n{result.output}")
    lines = (line.rstrip() for line in result.output.rstrip().splitlines())
    return "\n".join(["```console", f"$ {COMMAND}", *lines, "```"])
