"""A fault on a stack: whether it shows, and as what."""

from __future__ import annotations

import os
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from meshproof.report.document import read_report
from tests.regressions.known import Regression

ROOT = Path(__file__).parents[2]


def shows(regression: Regression, python: str | Path) -> str:
    """The first that the clause says of a fault where this interpreter is; nothing where all is well.

    Raises ``RuntimeError`` where something else is wrong.
    """
    report = run_suites(str(python), *regression.run)
    [tests] = [clause["tests"] for clause in report["clauses"] if clause["id"] == regression.clause]
    if not regression.select:
        tests = [test for test in tests if f"[{regression.name}-" in test["id"]]
    fates = {test["status"] for test in tests}
    if not fates or not fates <= {"proved", "failed"}:
        raise RuntimeError(f"of {regression.name}, {regression.clause} is {', '.join(sorted(fates)) or 'not judged'}")
    messages = [test["message"] for test in tests if test["status"] == "failed"]
    if not all(regression.shown in message for message in messages):
        raise RuntimeError(f"{regression.name} is to show {regression.shown}, not:\n{messages}")
    return next((line for message in messages for line in message.splitlines() if line.startswith("  - ")), "")


@cache
def run_suites(python: str, implementation: str, select: str) -> dict[str, Any]:
    """The report of one run in the checkout, on 8 virtual CPU devices."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        options = ["-q", "--runxfail", "--impl", implementation, "-k", select, "--conformance-report", str(report)]
        settings = {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
        command = [python, "-m", "pytest", "suites", *options]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=os.environ | settings)
        if not report.exists():
            raise RuntimeError(f"the suites wrote no report of {select!r}:\n{done.stdout}{done.stderr}")
        return read_report(report)
