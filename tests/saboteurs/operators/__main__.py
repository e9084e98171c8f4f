"""``python -m tests.saboteurs.operators`` prints the kill matrix of all mutants, and fails where one survives."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.saboteurs.operators.matrix import Fate, fates, table


def judge(*options: str) -> list[Fate]:
    """The fates of the mutants that these options of pytest choose, by one run of the suites."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        suites = ["suites", "--impl", "tests.saboteurs.operators", "-n", "2", "-q", "--tb=no"]
        run = subprocess.run(
            [sys.executable, "-m", "pytest", *suites, "--conformance-report", str(report), *options],
            capture_output=True,
            text=True,
        )
        if not report.exists():
            raise RuntimeError(f"the suites wrote no report:\n{run.stdout}{run.stderr}")
        return list(fates(json.loads(report.read_text())))


if __name__ == "__main__":
    found = judge()
    print(table(found))
    survivors = [f"{fate.operator} of {fate.strategy}" for fate in found if fate.survived]
    sys.exit("\n".join(["these survived:", *survivors]) if survivors else 0)
