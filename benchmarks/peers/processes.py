"""A framework in a process of its own, without the other's threads and allocator; it answers one call at a time."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from textwrap import shorten
from typing import Any

PATIENCE = 1800.0
"""Seconds without an answer after which a process is given up: the largest size takes minutes to compile and judge."""

LINE = 400
"""The most characters of an exception in a message: enough to recognise *out of memory*."""


class PeerError(Exception):
    """A comparison that cannot be made; the message names the side and the reason."""


class Side:
    """One process with the object that ``build(*arguments)`` made there; spawned, so that nothing is shared."""

    def __init__(self, name: str, build: Callable[..., Any], *arguments: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self.name = name
        self.link, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, build, arguments), daemon=True)
        self.process.start()
        theirs.close()

    def ask(self, method: str, *arguments: Any) -> Any:
        """The result of a method there. Raises `PeerError` if it raises, or the process ends or is silent."""
        try:
            with suppress(ConnectionError):  # if it is gone, its last words can still be read
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
        """End the process, which frees its memory on the device."""
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
