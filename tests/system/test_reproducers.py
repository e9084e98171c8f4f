"""A user's own table: what fails of it is written down as a script that fails without Meshproof."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.newest_stack

ROOT = Path(__file__).parents[2]
LONGEST = 15
HELPERS = 5
"""Lines of the functions of this table that an operation calls, in one of their own: the script has a `mesh`."""

TABLE = """\
import jax
import numpy as np
from jax import nn

from meshproof.operations import Operand, Operation
from meshproof.operations.transforms import PLAIN, Transform, TransformFamily
from meshproof.operations.transforms.bodies import BODIES

X = Operand((8, 16))


def mesh():
    return jax.sharding.get_abstract_mesh()


def factor():
    return 2.0 if mesh().size > 1 else 1.0


def sometimes_doubled(x: jax.Array, y) -> jax.Array:
    \"\"\"Wrong on several devices.\"\"\"
    return x + factor() * y


def closing(by):
    return lambda x: x * by


def operations():
    ours = Operation("doubled", sometimes_doubled, (X, X), lambda x, y: x + y, differentiable=False)
    turned = Operation("turned", lambda x: x.T, (X,), lambda x: x.T)
    steep = Operation("steep", lambda x: x * (jax.lax.stop_gradient(factor())), (X,))
    tripled = Operation("tripled", lambda x: 3.0 * x, (X,), lambda x: 2.0 * x, differentiable=False)
    held = Operation("held", closing(2.0), (X,), lambda x: x, differentiable=False)
    lent = Operation("lent", lambda x: nn.relu(x) * factor(), (X,), lambda x: np.maximum(x, 0), differentiable=False)
    return [ours, turned, steep, tripled, held, lent]


STEPS = 3


def too_often(function):
    \"\"\"A step too many.\"\"\"

    def step(pair, _):
        return function(*pair), None

    return lambda x, w: jax.lax.scan(step, (x, w), None, length=STEPS)[0]


def transforms():
    jit, scan = Transform("jit", jax.jit), Transform("scan", too_often, lambda f: lambda x, w: f(*f(x, w)))
    return [TransformFamily(outer, (PLAIN, scan), BODIES[:1]) for outer in (PLAIN, jit)]
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
    """A script for each operation and composition that fails, and none for others; the run says where."""
    folder, done = run
    assert done.returncode == 1, done.stdout + done.stderr
    assert {path.name for path in (folder / "found").iterdir()} == {
        "doubled.py",
        "steep.py",
        "plain-scan.py",
        "jit-scan.py",
    }
    written = "found/doubled.py, found/jit-scan.py, found/plain-scan.py, found/steep.py"
    assert (
        f"reproducers: {written}, none of held (it closes over by; write it as a function of its file)" in done.stdout
    )
    assert "none of lent (its script says NameError: name 'nn' is not defined" in done.stdout
    assert "none of tripled (alone it gives what one device gives" in done.stdout
    entries = {entry["id"]: entry for entry in json.loads((folder / "report.json").read_text())["operations"]}
    names = {"doubled", "turned", "steep", "tripled", "held", "lent", "transform-plain", "transform-jit"}
    assert entries.keys() == {f"{name}@operations" for name in names}


@pytest.mark.parametrize("name", ["doubled", "steep", "plain-scan"])
def test_a_script_fails_where_the_suite_did(run, name):
    """In at most fifteen lines, of which none knows Meshproof."""
    folder, _ = run
    script = folder / "found" / f"{name}.py"
    text = script.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= LONGEST + HELPERS and "meshproof" not in text
    alone = subprocess.run([sys.executable, "-I", str(script)], capture_output=True, text=True)
    assert alone.returncode == 1 and "AssertionError: on " in alone.stderr, alone.stderr


@pytest.mark.parametrize(
    ("name", "fault", "mended"), [("doubled", "2.0 if", "1.0 if"), ("plain-scan", "length=3", "length=2")]
)
def test_a_script_passes_once_it_is_mended(run, name, fault, mended):
    """What it asserts is the fault, not something that always fails."""
    folder, _ = run
    text = (folder / "found" / f"{name}.py").read_text(encoding="utf-8")
    assert fault in text
    script = folder / f"{name}_mended.py"
    script.write_text(text.replace(fault, mended), encoding="utf-8")
    alone = subprocess.run([sys.executable, "-I", str(script)], capture_output=True, text=True)
    assert alone.returncode == 0, alone.stderr


def test_a_file_is_no_folder_for_scripts(tmp_path):
    """It is refused before the first test."""
    (tmp_path / "found").write_text("", encoding="utf-8")
    command = [sys.executable, "-m", "meshproof", "check", "--collect-only", "-q", "--reproducers", "found"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 4
    assert "--reproducers found: expected a folder in which files can be written" in done.stdout + done.stderr
