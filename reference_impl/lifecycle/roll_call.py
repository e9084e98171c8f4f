"""Before JAX's own meeting every process says which it is: whoever is missing, or there twice, is named in time.

                                  JAX 0.12 alone                               here, in every process
    a process does not come       SIGABRT, no exception, names nobody          "process 1 of 2 did not come …"
    two processes of one number   SIGABRT in all, or in one of the two         "two processes are process 1 …"
    another number of processes   not noticed where process 0 says fewer       "process 1 counts 3 processes …"

Process 0 listens where JAX's coordinator will, and leaves the port to it when all are there.
"""

from __future__ import annotations

import json
import os
import socket
import time
from contextlib import ExitStack, suppress

ALL_HERE = "all here"

LINE = 5.0
"""Seconds in which whoever has connected must have said who it is."""


def call_the_roll(address: str, count: int, number: int, patience: float) -> None:
    """Wait until processes 0 to ``count - 1`` are there, each once. ``address`` is that of process 0, ``HOST:PORT``.

    Raises ``ValueError`` for what is no address. Where a process is missing, there twice, or counts otherwise, raises
    ``RuntimeError`` with the same words in all that are there, within ``patience`` seconds and a few.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise ValueError(f"the coordinator's address is {address!r}, expected HOST:PORT, such as 10.0.0.1:8476")
    said = json.dumps({"number": number, "count": count})
    answer = ask(int(port), count, patience) if number == 0 else tell(host.strip("[]"), int(port), said, patience)
    if answer != ALL_HERE:
        raise RuntimeError(f"{answer} (at {address}, within {patience:g} s)")


def ask(port: int, count: int, patience: float) -> str:
    """Process 0: hear every other one, and tell each of them the same, which is returned."""
    others: dict[int, socket.socket] = {}
    until = time.monotonic() + patience
    with ExitStack() as stack:
        try:
            listening = stack.enter_context(socket.create_server(("", port)))
        except OSError as error:
            why = os.strerror(error.errno or 0)
            return f"process 0 cannot listen: {why}; expected one process 0, and a port that is its own"
        heard = [stack.enter_context(listening)]
        answer = ALL_HERE
        while len(others) < count - 1 and answer == ALL_HERE:
            listening.settimeout(max(0.01, until - time.monotonic()))
            try:
                heard.append(stack.enter_context(listening.accept()[0]))
            except TimeoutError:
                missing = " and ".join(str(each) for each in range(1, count) if each not in others)
                answer = f"process {missing} of {count} did not come: expected each to be started, with its own number"
                continue
            with suppress(OSError, ValueError, LookupError, TypeError):  # a stranger's
                heard[-1].settimeout(LINE)
                said = json.loads(heard[-1].makefile().readline())
                answer = problem(said["number"], said["count"], count, others)
                others.setdefault(said["number"], heard[-1])
        for other in heard[1:]:
            with suppress(OSError):
                other.sendall(json.dumps({"answer": answer}).encode())
    return answer


def problem(number: int, counted: int, count: int, others: dict[int, socket.socket]) -> str:
    """What is wrong with another process, if anything is."""
    if counted != count:
        return f"process {number} counts {counted} processes, process 0 counts {count}: expected one number everywhere"
    if number in others:
        return f"two processes are process {number} of {count}: expected each to have a number of its own"
    return ALL_HERE


def tell(host: str, port: int, said: str, patience: float) -> str:
    """Another process: say who it is as soon as process 0 listens, and hear what that says to all."""
    until = time.monotonic() + patience
    while True:
        try:
            asking = socket.create_connection((host, port), timeout=max(0.01, until - time.monotonic()))
            break
        except OSError as error:
            if time.monotonic() > until:
                return f"process 0 did not come: expected it to be started, and to be reached there ({error})"
            time.sleep(0.1)
    with asking:
        asking.settimeout(patience + LINE)  # process 0 may have come just now
        try:
            asking.sendall(f"{said}\n".encode())
            with asking.makefile() as answered:
                return str(json.loads(answered.read())["answer"])
        except (OSError, ValueError, LookupError, TypeError):
            return "process 0 does not answer: all may have met already, without this one, or another program listens"
