"""The command line: each command stands in `meshproof.commands`."""

from __future__ import annotations

import signal
from importlib.metadata import version
from typing import Annotated

import typer

from meshproof.commands.adopt import adopt
from meshproof.commands.census import census
from meshproof.commands.check import PASSES_ON, check
from meshproof.commands.compare import compare
from meshproof.commands.documents import expectations, html, spec
from meshproof.commands.launch import PASSES_ON as ALL_AFTER
from meshproof.commands.launch import launch
from meshproof.commands.plan import plan
from meshproof.commands.plots import plots
from meshproof.commands.timing import ab, baseline
from meshproof.commands.upgrade import bisect, upgrade

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Conformance and regression suite for distributed training in JAX and Flax.",
)
app.command(context_settings=PASSES_ON)(check)
app.command(context_settings=ALL_AFTER)(launch)
for command in (adopt, compare, upgrade, bisect, ab, census, html, plan, plots, spec):
    app.command()(command)
app.add_typer(expectations, name="expectations")
app.add_typer(baseline, name="baseline")


ENDING = ("SIGTERM", "SIGHUP")
"""How schedulers, and terminals that are closed, end a command: it would leave behind what it has started."""


def tell_version(asked: bool) -> None:
    """Print the installed version, and end."""
    if asked:
        typer.echo(f"meshproof {version('meshproof')}")
        raise typer.Exit


@app.callback()
def main(
    asked: Annotated[
        bool, typer.Option("--version", callback=tell_version, is_eager=True, help="Print the version, and end.")
    ] = False,
) -> None:
    """Conformance and regression suite for distributed training in JAX and Flax."""
    for name in ENDING:
        number = getattr(signal, name, None)
        if number and signal.getsignal(number) is signal.SIG_DFL:  # nohup ignores one, and so do its commands
            signal.signal(number, signal.default_int_handler)
