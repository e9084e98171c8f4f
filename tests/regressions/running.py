"""A fault on a stack: whether it shows, and as what."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from pathlib import Path

from tests.regressions.known import Regression

ROOT = Path(__file__).parents[2]


def shows(regression: Regression, python: str | Path) -> str:
    """What is seen of a fault where this interpreter is, in a line; nothing where all is well.

    Raises ``RuntimeError`` where something else is wrong.
    """
    seen = violated(regression, python) if regression.clause else raised(regression, python)
    if seen and (regression.clause or regression.shown) not in seen:
        raise RuntimeError(f"{regression.name} is to show {regression.clause or regression.shown}, not: {seen}")
    return seen


def violated(regression: Regression, python: str | Path) -> str:
    """The clauses that the chosen cases violate, whatever is expected of them."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        options = ["-q", "--runxfail", "-k", regression.select, "--conformance-report", str(report)]
        done = run([str(python), "-m", "pytest", "suites", *options])
        if not report.exists():
            raise RuntimeError(f"the suites wrote no report of {regression.name}:\n{done.stdout}{done.stderr}")
        clauses = json.loads(report.read_text(encoding="utf-8"))["clauses"]
    fates = {clause["id"]: clause["status"] for clause in clauses}
    if fates[regression.clause] not in ("proved", "failed"):
        raise RuntimeError(f"{regression.clause} is {fates[regression.clause]} of what {regression.select!r} chooses")
    return ", ".join(clause for clause, fate in fates.items() if fate == "failed")


def raised(regression: Regression, python: str | Path) -> str:
    """The last line of what the reproduction says, or the signal that killed it."""
    done = run([str(python), "-m", "tests.regressions.reproductions", regression.name])
    if done.returncode < 0:
        return signal.Signals(-done.returncode).name
    lines = [line for line in done.stderr.splitlines() if "Error" in line]
    return (lines or [done.stderr])[-1] if done.returncode else ""


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    """A command in the checkout, on 8 virtual CPU devices."""
    settings = {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "8"}
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=os.environ | settings)
