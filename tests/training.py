"""The command that trains, in this process: FSDP of the perceptron on eight devices."""

import typer
from typer.testing import CliRunner

from reference_impl import train

COMMAND = ["--strategy", "fsdp", "--mesh", "data=8", "--model", "mlp", "--batch", "64", "--seed", "3"]


def command(*arguments):
    """The exit code of the command, and what it says."""
    loop = typer.Typer()
    loop.command()(train.main)
    done = CliRunner().invoke(loop, [*COMMAND, *map(str, arguments)], env={"COLUMNS": "200"})
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output
