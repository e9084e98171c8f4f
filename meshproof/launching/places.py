"""The line of its program at which a process stands, as Python prints it where SIGABRT ends it."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from meshproof.children import stack
from meshproof.launching.activity import is_alive
from meshproof.launching.departures import read_stack

PRINTING = 2.0
"""Seconds in which all must have printed it."""

CALL = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)$')
LIBRARY = re.compile(r"/(site-packages|dist-packages|lib/python3\.\d+)/|^<frozen ")


def find_places(folder: Path, numbers: Iterable[int]) -> dict[int, str]:
    """Number of each process that can tell to ``, at FILE:LINE in FUNCTION``. It ends those processes."""
    able = {number: process for number in numbers if (process := read_stack(folder, number)[0])}
    for process in able.values():
        with suppress(ProcessLookupError):
            for each in (signal.SIGABRT, signal.SIGCONT):
                os.kill(process, each)
    until = time.monotonic() + PRINTING
    while any(map(is_alive, able.values())) and time.monotonic() < until:
        time.sleep(0.02)
    found = {number: innermost(stack(read_stack(folder, number)[1])) for number in able}
    return {number: f", at {place}" for number, place in found.items() if place}


def innermost(calls: Iterable[str]) -> str:
    """The innermost call of the main thread that is the program's own, of a library's where there is none; and of every
    other thread that runs the program's own code: one that saves may be stuck while the main thread waits for it.
    """
    threads: list[list[str]] = []
    for line in calls:
        if call := CALL.match(line):
            threads[-1].append(f"{call['file']}:{call['line']} in {call['function']}")
        elif line in ("main thread:", "another thread:"):
            threads.append([])
    own = [next((place for place in places if not LIBRARY.search(place)), "") for places in threads]
    first = own[:1] if any(own[:1]) else [places[0] for places in threads[:1] if places]
    return "; another thread at ".join([*first, *filter(None, own[1:])])
