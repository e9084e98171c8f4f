"""The suites, run in another environment."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any

from meshproof.children import CASE_TIMEOUT, GRACE, TRACEBACK, abort_group, end, ended, lines, stack, start
from meshproof.environments import Environment, cache_folder
from meshproof.installation import CHECK, import_path
from meshproof.report.document import ReportError, read_report

FIXED = ("-q", "-p", "no:cacheprovider", "-p", "no:randomly")
PROGRESS = re.compile(r"\[ *(\d+)%\]")
SHOWN = 15
"""Lines that are shown of a run that ended without a report."""

COLLECTING = 300.0
"""Seconds in which a run must have printed something, whatever the limit of a case: it imports JAX and collects."""

WAITS = 6
"""How many answers of observing processes a test waits for at most: of its case, of those beside it, and of truths."""


class RunError(Exception):
    """A run without a report; the message has its last lines."""


def run_suites(
    environment: Environment,
    arguments: Sequence[str],
    report: Path,
    say: Callable[[int], object] = lambda percent: None,
    workers: int | None = None,
    case_timeout: float = CASE_TIMEOUT,
) -> dict[str, Any]:
    """The report of ``meshproof check`` in an environment, written to ``report``. ``say`` is called with percents.

    Compiled programs are kept beside the environment for its next run. Raises `RunError`.
    """
    report.unlink(missing_ok=True)
    options = ["-n", str(workers or os.cpu_count() or 1), "--compile-cache", str(compiled_folder(environment))]
    command = [str(environment.python), *TRACEBACK, "-m", *CHECK, *arguments, *FIXED, *options]
    last: deque[str] = deque(maxlen=SHOWN)
    process = start(
        [*command, "--case-timeout", f"{case_timeout:g}", "--conformance-report", str(report.absolute())],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=os.environ | {"PYTHONPATH": import_path()},
    )
    patience = COLLECTING + WAITS * case_timeout
    try:
        for line in lines(process, patience):
            last.append(line.rstrip())
            if found := PROGRESS.search(line):
                say(int(found[1]))
        ended(process, GRACE)
    except TimeoutError as error:
        aborting = Thread(target=abort_group, args=[process])  # its workers are in its group
        aborting.start()  # and print more than a pipe holds
        _, *dumps = rest(process).split("Fatal Python error")
        aborting.join()
        stood = "\n".join([*last, *(line for dump in dumps for line in stack(dump))])
        raise RunError(f"{environment.python}: the suites printed nothing for {patience:g} s:\n{stood}") from error
    except KeyboardInterrupt:
        process.send_signal(signal.SIGINT)
        rest(process)  # meanwhile it writes its report
        raise
    finally:
        end(process)
    try:
        return read_report(report)
    except ReportError as error:
        printed = "\n".join(last)
        raise RunError(f"{environment.python}: exit code {process.returncode}, and no report:\n{printed}") from error


def compiled_folder(environment: Environment) -> Path:
    """Where the compiled programs of an environment are kept: in it, or beside those that meshproof made."""
    inside = environment.python.parent.parent / "compiled"
    if inside.is_relative_to(cache_folder()):
        return inside
    return cache_folder() / "compiled" / str(environment.python).strip(os.sep).replace(os.sep, "-")


def rest(process: subprocess.Popen[bytes]) -> str:
    """What a process prints that was told to end, as far as it does so in time."""
    printed: list[str] = []
    with suppress(TimeoutError):
        printed += lines(process, GRACE)
    return "\n".join(printed)
