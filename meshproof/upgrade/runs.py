"""The suites, run in another environment."""

from __future__ import annotations

import os
import re
import subprocess
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from meshproof.environments import Environment, cache_folder
from meshproof.installation import CHECK, import_path
from meshproof.report.document import ReportError, read_report

FIXED = ("-q", "-p", "no:cacheprovider", "-p", "no:randomly")
PROGRESS = re.compile(r"\[ *(\d+)%\]")
SHOWN = 15
"""Lines that are shown of a run that ended without a report."""


class RunError(Exception):
    """A run without a report; the message has its last lines."""


def run_suites(
    environment: Environment,
    arguments: Sequence[str],
    report: Path,
    say: Callable[[int], object] = lambda percent: None,
    workers: int | None = None,
) -> dict[str, Any]:
    """The report of ``meshproof check`` in an environment, written to ``report``. ``say`` is called with percents.

    Compiled programs are kept beside the environment for its next run. Raises `RunError`.
    """
    report.unlink(missing_ok=True)
    compiled = environment.python.parent.parent / "compiled"
    if not compiled.is_relative_to(cache_folder()):
        compiled = cache_folder() / "compiled" / str(environment.python).strip(os.sep).replace(os.sep, "-")
    options = ["-n", str(workers or os.cpu_count() or 1), "--compile-cache", str(compiled)]
    command = [str(environment.python), "-m", *CHECK, *arguments, *FIXED, *options]
    last: deque[str] = deque(maxlen=SHOWN)
    with subprocess.Popen(
        [*command, "--conformance-report", str(report.absolute())],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=os.environ | {"PYTHONPATH": import_path()},
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            last.append(line.rstrip())
            if found := PROGRESS.search(line):
                say(int(found[1]))
    try:
        return read_report(report)
    except ReportError as error:
        printed = "\n".join(last)
        raise RunError(f"{environment.python}: exit code {process.returncode}, and no report:\n{printed}") from error
