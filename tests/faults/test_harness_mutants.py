"""Whoever blinds the harness is caught by its own tests: each mutant of Meshproof itself makes some of them fail."""

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("meshproof", "reference_impl", "suites", "tests")
SKIP_ALL = """\
import pytest


def pytest_collection_modifyitems(items):
    for item in items:
        item.add_marker(pytest.mark.skip("another day"))
"""


@dataclass(frozen=True)
class Mutant:
    """``old`` in a file becomes ``new`` (a file without ``old`` is new), and one of these tests must fail."""

    file: str
    old: str
    new: str
    tests: str


MUTANTS = {
    "a comparator that is always content": Mutant(
        "meshproof/measures/verdicts.py",
        "return bool(self.records) and not self.failures",
        "return True",
        "unit/test_numerics.py",
    ),
    "a census that sees nothing": Mutant(
        "meshproof/hlo/census.py", "    _check_mesh(mesh)\n", "    return ()\n", "unit/hlo/test_census.py"
    ),
    "a bound a million times as wide": Mutant(
        "meshproof/measures/numerics.py", "MULTIPLE = 6.0", "MULTIPLE = 6.0e6", "unit/test_numerics.py"
    ),
    "a conftest that skips all": Mutant(
        "suites/conftest.py", "", SKIP_ALL, "system/test_plugin.py::test_a_minimal_trainer_is_observed_and_never_passed"
    ),
    "a report writer that drops failures": Mutant(
        "meshproof/run/recording.py",
        "list(records))",
        '[record for record in records if record.status != "failed"])',
        "system/test_expected_failures.py::test_runxfail_expects_nothing",
    ),
}


@pytest.fixture
def checkout(tmp_path):
    """The project's code, to be harmed."""
    for room in ROOMS:
        shutil.copytree(ROOT / room, tmp_path / room, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("conftest.py", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def run_tests(checkout, *tests):
    """Meshproof's own tests, on its code in another folder."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider"]
    command += [f"tests/{name}" for name in tests]
    return subprocess.run(command, cwd=checkout, capture_output=True, text=True)


@pytest.mark.thorough
def test_the_unharmed_harness_passes(checkout):
    """What makes a mutant's tests fail is the mutant: without one the same tests pass in the same place."""
    run = run_tests(checkout, *{mutant.tests for mutant in MUTANTS.values()})
    assert run.returncode == pytest.ExitCode.OK, run.stdout + run.stderr


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.thorough] if mutant.tests.startswith("system") else [])
        for name, mutant in MUTANTS.items()
    ],
)
def test_a_blind_harness_is_seen(checkout, name):
    """The tests fail, by a failed test and not by an error of collecting."""
    mutant = MUTANTS[name]
    harmed = checkout / mutant.file
    text = harmed.read_text(encoding="utf-8") if mutant.old else ""
    assert mutant.old in text and (mutant.old or not harmed.exists())
    harmed.write_text(text.replace(mutant.old, mutant.new, 1) if mutant.old else mutant.new, encoding="utf-8")
    run = run_tests(checkout, mutant.tests)
    assert run.returncode == pytest.ExitCode.TESTS_FAILED, run.stdout + run.stderr
    assert "AssertionError" in run.stdout or "assert " in run.stdout
