"""Expected failures in a run: they hide nothing that nobody expects, and none outlives what it speaks of."""

import json
import subprocess
import sys
from pathlib import Path

import jsonschema_rs
import pytest

from meshproof.expectations import parse
from meshproof.expectations.updating import update
from meshproof.report.schemas import read_schema
from tests.expecting import LINK, entry, write

ROOT = Path(__file__).parents[2]
TOYS = """\
class Toy:
    framework, model, mesh_axes = "jax", "toy", {"data": 2}

    def __init__(self, name):
        self.name = name

    def init(self, key):
        raise NotImplementedError("a toy")

    train_step = batches = init


def strategies():
    return [Toy(name) for name in ("good", "better", "bad", "worse", "broken", "absent")]
"""
SUITE = '''\
import pytest

from meshproof.observing.seen import NotSupported


@pytest.fixture
def seen(case, judge):
    if case.strategy.name == "bad":
        judge.fail(["it is bad"])


@pytest.mark.clause("NUM-1")
def test_toy(case, seen, judge):
    """A toy MUST be good."""
    if case.strategy.name == "worse":
        judge.fail(["it is worse"])
    if case.strategy.name == "broken":
        raise KeyError("the test itself")
    if case.strategy.name == "absent":
        judge.see(NotSupported("it is absent"))


@pytest.mark.clause("NUM-2")
def test_stack(judge):
    """The stack MUST be good."""
'''


MISTAKEN = [entry("good"), entry("b*"), entry("gone"), entry("bad", devices=">2"), entry("worse", "flaky")]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A folder with a suite of toys, good and bad, which are its reference implementation."""
    folder = tmp_path_factory.mktemp("checkout")
    (folder / "suites").mkdir()
    (folder / "suites" / "test_toy.py").write_text(SUITE)
    for name in ("reference_impl.py", "toys.py"):
        (folder / name).write_text(TOYS)
    (folder / "conftest.py").write_text('pytest_plugins = ["meshproof.pytest_plugin"]\n')
    (folder / "pytest.ini").write_text(f"[pytest]\npythonpath = . {ROOT}\naddopts = --import-mode=importlib\n")
    return folder


def run(checkout, *arguments, known=()):
    """What pytest says there, and what it recorded, where this is known of the reference implementation."""
    path = checkout / "report.json"
    path.unlink(missing_ok=True)
    write(checkout / "suites" / "expectations.toml", *known)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--conformance-report", path, *arguments]
    ran = subprocess.run(list(map(str, command)), cwd=checkout, capture_output=True, text=True)
    report = json.loads(path.read_text()) if path.exists() else None
    return ran.returncode, ran.stdout + ran.stderr, report


def statuses(report):
    """Toy to the status of its test and how that was expected."""
    [clause] = [clause for clause in report["clauses"] if clause["id"] == "NUM-1"]
    return {
        test["case"].partition("-")[0]: (test["status"], (test["expectation"] or {}).get("status"))
        for test in clause["tests"]
    }


@pytest.fixture(scope="module")
def expected(checkout):
    """A run in which everything is as expected, but for the broken test."""
    known = [
        entry("bad", devices=2, target="cpu", platform="cpu"),
        entry("bett?r", "flaky"),
        entry("worse", "flaky"),
        entry("good", jax="<0.1"),
        entry("good", target="native"),
        entry("good", platform="tpu"),
        entry("absent"),
        entry("broken"),
    ]
    return run(checkout, "suites", known=known)


@pytest.fixture(scope="module")
def stale(checkout):
    """A run on two processes in which little is as expected, by a file of the user's own."""
    file = write(checkout / "own.toml", *MISTAKEN)
    return run(checkout, "suites", "-n", "2", "-k", "test_toy", "--expectations", file)


def test_expected_failures_are_no_failures_and_no_proof(expected):
    """A violated clause that is expected is recorded with entry and message, and is not proved; one that held is."""
    code, output, report = expected
    assert code == 1 and "1 failed, 3 passed, 1 skipped, 2 xfailed" in output
    jsonschema_rs.validate(read_schema("report"), report)
    found = statuses(report)
    assert found["bad"] == ("expected-failure", "xfailed")
    assert found["good"] == ("proved", None)
    [bad] = [test for clause in report["clauses"] for test in clause["tests"] if test["case"] == "bad-jax-toy@data=2"]
    assert "known upstream" in bad["message"] and "it is bad" in bad["message"]
    assert [known["number"] for known in bad["expectation"]["entries"]] == [1]


def test_flaky_tests_are_told(expected):
    """Either outcome of a flaky test is accepted, and the run says what it did."""
    _, output, report = expected
    assert statuses(report)["better"] == ("proved", "flaky")
    assert statuses(report)["worse"] == ("expected-failure", "flaky")
    assert f"FLAKY: 1 test failed: known upstream ({LINK})" in output
    assert f"FLAKY: 1 test passed: known upstream ({LINK})" in output
    assert f"EXPECTED: 1 test failed: known upstream ({LINK})" in output


def test_only_violations_can_be_expected(expected):
    """Another error of a test stays one, and what is not supported is neither a failure nor a pass."""
    found = statuses(expected[2])
    assert found["broken"] == ("failed", "not-judged")
    assert found["absent"] == ("not-supported", "not-judged")


def test_a_pass_against_expectation_fails(stale):
    """A test that passes although it is expected to fail is a failure that names the entry and what to do."""
    code, output, report = stale
    assert code == 1
    assert statuses(report)["good"] == ("failed", "xpassed")
    assert statuses(report)["bad"] == ("expected-failure", "xfailed")
    for words in ("the expectation no longer holds", "entry 1 of", "own.toml", "meshproof expectations update"):
        assert words in output


def test_entries_without_a_test_are_errors(stale):
    """An entry that no test is covered by is an error of the run, under xdist too, and is in the report."""
    _, output, report = stale
    assert "entry 3 of" in output and "matches no test: 'suites/test_toy.py::*[gone-*]'" in output
    assert "2 errors" in output
    assert [unmatched["number"] for unmatched in report["unmatched_expectations"]] == [3, 4]


def test_the_record_of_a_run_updates_its_file(stale, tmp_path):
    """What the report of a run says of a file is what becomes of it."""
    file = write(tmp_path / "own.toml", *MISTAKEN)
    update(stale[2], file)
    left = [known.test.partition("[")[2] for known in parse(file.read_text(), "own.toml")]
    assert left == ["bad-jax-toy@data=2]", "broken-jax-toy@data=2]", "worse-*]"]


def test_a_narrowed_run_judges_no_absence(checkout):
    """Where only some tests were collected, an entry without one may be for another. What is known of the reference
    implementation is not expected of another one."""
    file = write(checkout / "gone.toml", entry("gone"))
    arguments = ["suites/test_toy.py::test_toy", "--impl", "toys", "-k", "bad", "--expectations", file]
    _, output, report = run(checkout, *arguments, known=[entry("bad")])
    assert statuses(report) == {"bad": ("failed", None)} and "matches no test" not in output


def test_runxfail_expects_nothing(checkout):
    """With pytest's own option, everything is judged as if nothing were known."""
    _, output, report = run(checkout, "suites", "--runxfail", "-k", "bad", known=[entry("bad"), entry("gone")])
    assert statuses(report) == {"bad": ("failed", None)} and "matches no test" not in output


def test_an_unreadable_file_fails_before_the_first_test(checkout):
    """A file that cannot be used is one error, with its reason."""
    file = write(checkout / "bad.toml", entry("bad", jax="new"))
    code, output, report = run(checkout, "suites", "--expectations", file)
    assert code == pytest.ExitCode.USAGE_ERROR and report is None
    assert output.count("ERROR: ") == 1 and "Traceback" not in output
    assert "bad.toml: entry 1: when: jax is 'new'" in output
