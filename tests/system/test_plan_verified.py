"""`meshproof plan --against`: formulas beside what this stack's compiler makes of the book's transformer."""

import json
import subprocess
import sys

import pytest

from tests.system.test_plan_command import invoke

pytestmark = pytest.mark.newest_stack

CHOSEN = (
    "jax-gpt and data and not zero and not hsdp and not shard_map and not context and not block and not scanned "
    "and not adam and not tensor and not vocab and not sequence and not cnn"
)
TOY = (
    *("--params", 107136, "--layers", 2, "--d-model", 64, "--d-ff", 256, "--heads", 8, "--vocab", 96),
    *("--sequence", 16, "--batch-tokens", 256, "--hardware", "h100", "--precision", "float32"),
    *("--optimizer", "momentum"),
)
LEAST, MOST = 0.8, 2.5
"""Temporary memory of a compiled step over its formula: docs/planning.md states it."""


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """The record of a run on the transformer's data parallelism and its recomputing FSDP, compiled for the CPU."""
    path = tmp_path_factory.mktemp("verified") / "report.json"
    arguments = ["suites/test_state_bytes_equal_theory.py", "-k", CHOSEN, "--conformance-report", str(path), "-q"]
    ended = subprocess.run([sys.executable, "-m", "pytest", *arguments], capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, ended.stdout
    return path


@pytest.mark.parametrize(
    ("chips", "name", "near"),
    [
        (1, "single_device-jax-gpt@data=1", 1e-6),
        (8, "data_parallel-jax-gpt@data=8", 1e-4),
        (2, "fsdp-jax-gpt+remat@data=2", 0.02),
    ],
)
def test_the_compiler_agrees(report, chips, name, near):
    """State and what moves, to what leaves of a few numbers make of so small a model; temporary memory by a factor."""
    ended = invoke(*TOY, "--chips", chips, "--against", report, "--json")
    assert ended.exit_code == 0, ended.stderr
    found = {each["what"]: each["ratio"] for each in json.loads(ended.stdout)["verified"] if each["case"] == name}
    assert len(found) == 2 + (chips > 1)
    assert LEAST < found.pop("temporary") < MOST
    assert all(ratio == pytest.approx(1, rel=near) for ratio in found.values()), found


def test_both_are_printed(report):
    """A line for each amount, and why other cases are not compared."""
    text = invoke(*TOY, "--chips", 8, "--against", report).stdout
    assert "Formula beside compiler, bytes of a device and step" in text
    assert "not compared: fsdp-jax-gpt+remat@data=2: it has 2 devices, the question 8" in text
