"""``python -m tests.saboteurs.operators README.md`` judges every mutant, keeps what became of it, and tabulates it."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from meshproof.report import replace_text
from reference_impl.__main__ import insert
from tests.saboteurs.operators.matrix import KILLED, NAME, Fate, data, fates, table


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
    replace_text(KILLED, json.dumps(data(found), indent=0))
    for path in map(Path, sys.argv[1:]):
        replace_text(path, insert(path.read_text(encoding="utf-8"), NAME, table(data(found))))
    survivors = [f"{fate.operator} of {fate.strategy}" for fate in found if fate.survived]
    sys.exit("\n".join(["these survived:", *survivors]) if survivors else 0)
