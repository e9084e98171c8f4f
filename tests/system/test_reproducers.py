"""A user's own table of operations: what fails of it is written down as a script that fails without Meshproof."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LONGEST = 15

TABLE = """\
import jax
import numpy as np

from meshproof.operations import Operand, Operation

X = Operand((8, 16))


def factor():
    return 2.0 if jax.sharding.get_abstract_mesh().size > 1 else 1.0


def sometimes_doubled(x: jax.Array, y) -> jax.Array:
    \"\"\"Wrong on several devices.\"\"\"
    return x + factor() * y


def operations():
    ours = Operation("doubled", sometimes_doubled, (X, X), lambda x, y: x + y, differentiable=False)
    turned = Operation("turned", lambda x: x.T, (X,), lambda x: x.T)
    steep = Operation("steep", lambda x: x * (jax.lax.stop_gradient(factor())), (X,))
    return [ours, turned, steep]
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of the suites on that table, from the folder that it is in."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "my_ops.py").write_text(TABLE, encoding="utf-8")
    options = ["-k", "operations", "-q", "--tb=no", "-p", "no:randomly", "--reproducers", "found"]
    command = [sys.executable, "-m", "meshproof", "check", *options, "--operations", "my_ops.py"]
    command += ["--conformance-report", "report.json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    return folder, done


def test_what_fails_is_written_down(run):
    """A script for each operation that fails, and none for others; the run says where."""
    folder, done = run
    assert done.returncode == 1, done.stdout + done.stderr
    assert {path.name for path in (folder / "found").iterdir()} == {"doubled.py", "steep.py"}
    assert "reproducers: found/doubled.py, found/steep.py" in done.stdout
    entries = {entry["id"]: entry for entry in json.loads((folder / "report.json").read_text())["operations"]}
    assert entries.keys() == {"doubled@operations", "turned@operations", "steep@operations"}


@pytest.mark.parametrize("name", ["doubled", "steep"])
def test_a_script_fails_where_the_suite_did(run, name):
    """In at most fifteen lines, of which none knows Meshproof."""
    folder, _ = run
    script = folder / "found" / f"{name}.py"
    text = script.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= LONGEST and "meshproof" not in text
    alone = subprocess.run([sys.executable, "-I", str(script)], capture_output=True, text=True)
    assert alone.returncode == 1 and "AssertionError: on " in alone.stderr, alone.stderr


def test_a_script_passes_once_it_is_mended(run):
    """What it asserts is the fault, not something that always fails."""
    folder, _ = run
    text = (folder / "found" / "doubled.py").read_text(encoding="utf-8")
    assert "2.0 if" in text
    mended = folder / "mended.py"
    mended.write_text(text.replace("2.0 if", "1.0 if"), encoding="utf-8")
    alone = subprocess.run([sys.executable, "-I", str(mended)], capture_output=True, text=True)
    assert alone.returncode == 0, alone.stderr
