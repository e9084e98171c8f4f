"""`meshproof launch`: several local processes of one command, as one."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn

import typer

from meshproof.commands.failing import fail
from meshproof.launching.group import STUCK_AFTER, Group

PASSES_ON = {"allow_interspersed_args": False}
"""For typer: from the first word on that is no option, all are the command's."""

FAULTED = 1
"""The exit code where a process died, or was ended because it was stuck."""

SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
"""By which a user, a scheduler, and a terminal that is closed end a command. With `nohup` the last is ignored."""


class SignalledError(Exception):
    """A signal has come that ends the command."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = signal.Signals(number)


def hear(signals: Iterable[signal.Signals]) -> None:
    """Have each of these end the command."""
    for each in signals:
        signal.signal(each, end_by)


def end_by(number: int, _: FrameType | None) -> NoReturn:
    """Have it end what it started, and hear of no other signal meanwhile."""
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    raise SignalledError(number)


def say(*lines: str) -> None:
    """Print to stderr, unless that is gone with its terminal."""
    with suppress(OSError):
        typer.echo("\n".join(lines), err=True)


def last_words(group: Group, number: int | None) -> Iterator[str]:
    """What another process than the first printed last: that one's is on the screen."""
    for line in group.last_words(number) if number else ():
        yield f"process {number}: {line}"


def launch(
    command: Annotated[list[str], typer.Argument(metavar="COMMAND…", help="What every process runs, after --.")],
    processes: Annotated[int, typer.Option("--processes", "-n", help="How many processes.")] = 2,
    devices: Annotated[int, typer.Option(help="Virtual CPU devices, divided among the processes.")] = 8,
    stuck_after: Annotated[
        float, typer.Option(help="Seconds without a mark after which a process that lags is stuck.")
    ] = STUCK_AFTER,
    timeout: Annotated[float | None, typer.Option(help="Seconds that all of it may take (default: no limit).")] = None,
    grace: Annotated[float, typer.Option(help="Seconds that the processes have to save and end after SIGTERM.")] = 30.0,
) -> None:
    """Run a command as several local processes that find each other as on a cluster.

    Each gets `JAX_COORDINATOR_ADDRESS`, `JAX_NUM_PROCESSES` and `JAX_PROCESS_ID`, and its share of the devices. Process
    0 prints as if it ran alone; what another one printed is shown where it failed. A process that dies, is stopped by a
    signal, or marks no further step while others went on, is named, and all are ended. SIGTERM is passed on, and all
    are ended after `--grace` seconds; by another signal, or a second one, at once. Exit code 0: every process ended
    with 0. 1: one did not. 2: nothing could be started. 128 and more: this command got a signal, and ended them.

    - `meshproof launch -n 2 -- python train.py`
    """
    for option, seconds in (("--stuck-after", stuck_after), ("--timeout", timeout), ("--grace", grace)):
        if seconds is not None and not seconds > 0:
            fail(f"{option} {seconds:g}: expected a number of seconds above 0")
    with tempfile.TemporaryDirectory(prefix="meshproof-", ignore_cleanup_errors=True) as folder:
        try:
            group = Group(command, processes, devices, Path(folder), dict(os.environ), shown=True)
        except ValueError as error:
            fail(str(error))
        try:
            heard = [each for each in SIGNALS if signal.getsignal(each) is not signal.SIG_IGN]
            hear(heard)
            with group:
                try:
                    fault = group.watch(stuck_after, timeout, lambda told: say(f"meshproof: {told}"))
                except SignalledError as signalled:
                    if signalled.number == signal.SIGTERM:
                        hear(heard)  # who signals again has waited long enough
                        for number, told in group.ask_to_end(grace).items():
                            say(f"meshproof: got SIGTERM; {told}", *last_words(group, number))
                    raise
                if fault is None:
                    return
                say(f"meshproof: {fault}; all {processes} processes are ended", *fault.details)
                for line in last_words(group, fault.number):
                    say(line)
        except SignalledError as signalled:
            say(f"meshproof: got {signalled.number.name}; all {processes} processes are ended")
            raise typer.Exit(128 + signalled.number) from None
        except OSError as error:
            fail(f"{command[0]}: cannot be started: {error.strerror or error}")
    raise typer.Exit(FAULTED)
