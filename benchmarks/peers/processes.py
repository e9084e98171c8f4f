"""A framework in a process of its own, asked one thing at a time: the other has no threads or allocator in it."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from textwrap import shorten
from typing import Any

PATIENCE = 1800.0
"""Seconds after which a silent process is given up: the largest size is judged in float32 and compiled."""

LINE = 400
"""Characters that are told of an exception: its kind, and in one line what it says. Of out of memory that is enough."""


class PeerError(Exception):
    """A comparison that cannot be made; the message says of which side, and why."""


class Side:
    """One process, with what ``build(*arguments)`` made there; spawned, so that it shares nothing with the parent."""

    def __init__(self, name: str, build: Callable[..., Any], *arguments: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self.name = name
        self.link, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, build, arguments), daemon=True)
        self.process.start()
        theirs.close()

    def ask(self, method: str, *arguments: Any) -> Any:
        """What a method there returns. Raises `PeerError` where it raises, where the process ends or says nothing."""
        try:
            with suppress(ConnectionError):  # where it is gone, what it said last is still to be read
                self.link.send((method, arguments))
            if not self.link.poll(PATIENCE):
                raise PeerError(f"{self.name} says nothing for {PATIENCE:.0f} s after being asked for {method}")
            done, result = self.link.recv()
        except (EOFError, ConnectionError) as error:
            self.process.join()
            raise PeerError(
                f"the process of {self.name} ended early, with exit code {self.process.exitcode}"
            ) from error
        if not done:
            raise PeerError(f"{self.name} failed at {method}: {result}")
        return result

    def close(self) -> None:
        """End the process: only then is its memory on the device free."""
        self.process.terminate()
        self.process.join()
        self.link.close()


def serve(link: Connection, build: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """Build, and answer until the parent is gone or something raises."""
    try:
        built = build(*arguments)
        while True:
            method, given = link.recv()
            link.send((True, getattr(built, method)(*given)))
    except EOFError:
        return
    except PeerError as error:
        link.send((False, str(error)))
    except Exception as error:
        link.send((False, shorten(f"{type(error).__name__}: {error}", LINE)))
