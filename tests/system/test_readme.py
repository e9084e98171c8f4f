"""What README.md shows can be done: its adapter is judged, and its failure is what is printed today."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from docs.generated import RUN, stale
from tests.documents import python_blocks

pytestmark = pytest.mark.newest_stack

ROOT = Path(__file__).parents[2]
NAMES = ("my_trainer", "meshproof")
"""Of the module, as the README calls it."""


def judged(folder, *edits):
    """The clauses by status of the README's adapter, written into an empty folder, with parts of it replaced.

    By the README's command, `meshproof check --impl my_trainer.meshproof`.
    """
    [adapter] = [
        block for block in python_blocks((ROOT / "README.md").read_text(encoding="utf-8")) if "def strategies" in block
    ]
    for old, new in edits:
        assert old in adapter
        adapter = adapter.replace(old, new)
    package, report = folder / NAMES[0], folder / "report.json"
    package.mkdir()
    (package / f"{NAMES[1]}.py").write_text(adapter, encoding="utf-8")
    options = ["--impl", ".".join(NAMES), "-n", "0", "--conformance-report", str(report)]
    run = subprocess.run(
        [sys.executable, "-m", "meshproof", "check", *options],
        capture_output=True,
        text=True,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert report.exists(), run.stdout + run.stderr
    found = {}
    for clause in json.loads(report.read_text(encoding="utf-8"))["clauses"]:
        for test in clause["tests"]:
            if test["case"]:
                found.setdefault(test["status"], set()).add(clause["id"])
    return found


def test_the_adapter_conforms(tmp_path):
    """Numbers, layout, communication, donation and compilation of the README's trainer are proved; nothing fails."""
    found = judged(tmp_path)
    assert "failed" not in found
    assert found["proved"] >= {
        "NUM-2", "NUM-3", "NUM-4", "NUM-5", "NUM-6", "SHD-1", "SHD-4", "SHD-5", "COM-2", "COM-10", "COM-11",
        "MEM-2", "CMP-1", "CMP-2", "ERR-2", "API-1",
    }  # fmt: skip


def test_the_adapter_can_fail(tmp_path):
    """Parameters that are sharded where its contract says that they are replicated are found."""
    found = judged(tmp_path, ("NamedSharding(self.mesh, P()))", 'NamedSharding(self.mesh, P("data")))'))
    assert "SHD-1" in found["failed"]


def test_the_failure_is_what_is_printed():
    """The clause, the findings and the line that runs it alone are those of today."""
    assert list(stale(RUN, ROOT)) == []
