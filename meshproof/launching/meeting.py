"""Several processes that tell each other what each has to say, in rounds, over TCP: process 0 listens, and passes on.

It carries what must not depend on what is judged: which tests were chosen, who has died, what has failed.
"""

from __future__ import annotations

import json
import os
import socket
import time
from contextlib import suppress
from selectors import EVENT_READ, DefaultSelector
from typing import Any, Self

from meshproof.launching.peers import Peers

JOINING = 60.0
"""Seconds in which every process must have come: each has imported JAX and collected its tests by then."""


class PeerError(RuntimeError):
    """A process that does not come, is there twice, has gone, or is silent; the message names it."""


class Meeting:
    """This process among its peers. To be used in a ``with``.

    Every process calls `exchange` equally often, in the same order.
    """

    def __init__(self, peers: Peers) -> None:
        self.peers = peers
        self.lines: dict[int, Lines] = {}
        self.connected: list[Lines] = []

    def __enter__(self) -> Self:
        """Meet all others. Raises `PeerError`."""
        try:
            self.listen() if self.peers.number == 0 else self.connect()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Leave; who still waits for this process hears that it has gone."""
        for lines in self.connected:
            lines.connection.close()

    def listen(self) -> None:
        """Process 0: take in every other one."""
        until, count = time.monotonic() + JOINING, self.peers.count
        port = int(self.peers.address.rpartition(":")[2])
        try:
            listening = socket.create_server(("", port))
        except OSError as error:
            raise PeerError(
                f"process 0 cannot listen at {self.peers.address}: {os.strerror(error.errno or 0)}; expected one "
                f"process 0, and a port that is its own"
            ) from error
        with listening:
            while missing := [number for number in range(1, count) if number not in self.lines]:
                listening.settimeout(max(0.01, until - time.monotonic()))
                try:
                    self.connected.append(Lines(listening.accept()[0]))
                except TimeoutError:
                    self.refuse(
                        f"process {' and '.join(map(str, missing))} of {count} did not come within {JOINING:g} s"
                    )
                with suppress(OSError, ValueError, LookupError, TypeError):  # a stranger's
                    said = self.connected[-1].wait(5.0)
                    number, counted = int(said["number"]), int(said["count"])
                    if counted != count:
                        self.refuse(f"process {number} counts {counted} processes, process 0 counts {count}")
                    if number in self.lines:
                        self.refuse(f"two processes are process {number} of {count}")
                    self.lines[number] = self.connected[-1]

    def connect(self) -> None:
        """Another process: find process 0."""
        host, _, port = self.peers.address.rpartition(":")
        until = time.monotonic() + JOINING
        while True:
            try:
                connection = socket.create_connection(
                    (host.strip("[]"), int(port)), max(0.01, until - time.monotonic())
                )
                break
            except OSError as error:
                if time.monotonic() > until:
                    raise PeerError(
                        f"process 0 did not come to {self.peers.address} within {JOINING:g} s, or had met all "
                        f"others before, as where another one is process {self.peers.number}, too"
                    ) from error
                time.sleep(0.1)
        self.lines[0] = Lines(connection)
        self.connected = [self.lines[0]]
        self.lines[0].send({"number": self.peers.number, "count": self.peers.count})

    def exchange(self, value: Any, limit: float, what: str) -> list[Any]:
        """What each process hands over, by its number; ``what`` that is, for the message. JSON.

        Raises `PeerError` in every process where one has gone, or is silent for ``limit`` seconds.
        """
        if self.peers.number == 0:
            given = {0: value} | self.gather(limit, what)
            everything = [given[number] for number in range(self.peers.count)]
            for lines in self.lines.values():
                with suppress(OSError):  # the next exchange says that it has gone
                    lines.send({"all": everything})
            return everything
        try:
            self.lines[0].send({"value": value})
            until = time.monotonic() + 2 * limit
            while "hurry" in (told := self.lines[0].wait(until - time.monotonic())):
                pass
        except TimeoutError:
            raise PeerError(f"process 0 said nothing for {2 * limit:g} s, expected {what} of all") from None
        except (OSError, ValueError) as error:
            raise PeerError(f"process 0 has gone, expected {what} of all") from error
        if "refused" in told:
            raise PeerError(told["refused"])
        return list(told["all"])

    def gather(self, limit: float, what: str) -> dict[int, Any]:
        """Process 0: what every other one hands over."""
        until, given = time.monotonic() + limit, dict[int, Any]()
        with DefaultSelector() as selector:
            for number, lines in self.lines.items():
                selector.register(lines.connection, EVENT_READ, number)
            while len(given) < len(self.lines):
                waiting = [number for number in self.lines if number not in given]
                ready = [
                    number for number in waiting if b"\n" in self.lines[number].pending
                ]  # came with what was before
                ready = ready or [key.data for key, _ in selector.select(max(0.0, until - time.monotonic()))]
                if not ready:
                    silent = " and ".join(map(str, waiting))
                    self.refuse(f"process {silent} said nothing for {limit:g} s, expected {what}")
                for number in ready:
                    try:
                        given[number] = self.lines[number].wait(limit)["value"]
                    except (OSError, ValueError):
                        self.refuse(f"process {number} has gone, expected {what}")
        return given

    def hurry(self) -> None:
        """Process 0: have the others end what they do, and come to the next exchange."""
        for lines in self.lines.values():
            with suppress(OSError):
                lines.send({"hurry": True})

    def hears_of(self, sign: str) -> bool:
        """Whether another process is at the next exchange with a value that has a ``sign``, or was told to hurry."""
        for lines in self.lines.values():
            try:
                told = lines.peek()
            except (OSError, ValueError):
                return True  # it has gone, as the next exchange will say
            if "hurry" in told or told.get("value", {}).get(sign):
                return True
        return False

    def refuse(self, why: str) -> None:
        """Process 0: end the meeting in every process, with the same words."""
        for lines in self.connected:
            with suppress(OSError):
                lines.send({"refused": why})
        raise PeerError(why)


class Lines:
    """A connection over which JSON goes, a line each."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection, self.pending = connection, b""

    def send(self, value: Any) -> None:
        """One line."""
        self.connection.sendall(f"{json.dumps(value)}\n".encode())

    def wait(self, limit: float) -> Any:
        """The next one. Raises ``TimeoutError``, or ``ConnectionError`` where there will be none."""
        until = time.monotonic() + limit
        while b"\n" not in self.pending:
            self.connection.settimeout(max(0.01, until - time.monotonic()))
            if not (chunk := self.connection.recv(1 << 16)):
                raise ConnectionResetError("the connection was closed")
            self.pending += chunk
        line, _, self.pending = self.pending.partition(b"\n")
        return json.loads(line)

    def peek(self) -> Any:
        """The next one, which stays the next one; an empty one where it is not there yet."""
        if b"\n" not in self.pending:
            self.connection.settimeout(0.001)
            with suppress(TimeoutError):
                if not (chunk := self.connection.recv(1 << 16)):
                    raise ConnectionResetError("the connection was closed")
                self.pending += chunk
        line, whole, _ = self.pending.partition(b"\n")
        return json.loads(line) if whole else {}
