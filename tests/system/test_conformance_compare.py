"""`pytest suites/ --conformance-compare`: a run is held against an older one, and exits as the comparison does."""

import json
from types import SimpleNamespace

import pytest

from meshproof.comparison.plugin import Compared
from tests.comparing import report
from tests.system.test_plugin import assert_refused, run_suites

UNKNOWN = report() | {"environment": None}
MINIMAL = ("--impl", "tests.implementations.minimal")


@pytest.fixture(scope="module")
def old(tmp_path_factory):
    """The report of a minimal trainer, which has no contract and no truth."""
    path = tmp_path_factory.mktemp("compare") / "old.json"
    run_suites(*MINIMAL, "--conformance-report", path)
    return path


def test_a_run_is_compared_with_an_older_one(old):
    """All is the same but what was changed in the old report: its own record judges a trainer without a contract.

    That to most of its clauses no case applies is the same in both.
    """
    run = run_suites(*MINIMAL, "--conformance-compare", old)
    assert run.returncode == 0 and "Everything is the same" in run.stdout, run.stdout
    changed = json.loads(old.read_text())
    changed["cases"][0]["losses"][1] *= 1.5
    old.write_text(json.dumps(changed))
    run = run_suites(*MINIMAL, "--conformance-compare", old)
    assert run.returncode == 1, run.stdout
    assert "regressed losses" in run.stdout and "loss of step 2" in run.stdout and "(1 regressed, " in run.stdout


@pytest.mark.parametrize(("found", "reason"), [(None, "no clause was judged"), (UNKNOWN, "could not be described")])
def test_a_run_that_cannot_be_told_is_not_green(found, reason):
    """Nothing judged, or of an unknown stack: exit code 2, and why."""
    session, said = SimpleNamespace(exitstatus=0), []
    plugins = {"meshproof": SimpleNamespace(record=found), "session": session}
    terminal = SimpleNamespace(section=said.append, write_line=said.append)
    config = SimpleNamespace(pluginmanager=SimpleNamespace(get_plugin=plugins.get))
    Compared(report(), ["regressed"]).pytest_terminal_summary(terminal, pytest.ExitCode.OK, config)
    assert session.exitstatus == 2 and reason in said[-1]


def test_what_cannot_be_compared_is_refused_before_the_first_test(old, tmp_path):
    """A damaged report, one of another implementation, and a class that is none."""
    damaged = tmp_path / "damaged.json"
    damaged.write_text(old.read_text()[:1000])
    assert_refused(run_suites(*MINIMAL, "--conformance-compare", damaged), "this is not JSON, or not all of it")
    assert_refused(run_suites("--conformance-compare", old), "tests.implementations.minimal", "two implementations")
    assert_refused(run_suites(*MINIMAL, "--fail-on", "changed"), "there is nothing to compare")
    kept = old.read_bytes()
    options = ("--conformance-compare", old, "--conformance-report", tmp_path / ".." / tmp_path.name / "old.json")
    (tmp_path / "old.json").symlink_to(old)
    assert_refused(run_suites(*MINIMAL, *options), "the command reads this file, which would be overwritten")
    assert old.read_bytes() == kept
    trainer = tmp_path / "trainer.py"
    trainer.write_text("import jax\n")
    assert_refused(run_suites(*MINIMAL, "--conformance-report", trainer), "trainer.py: this file is no JSON, and would")
    assert trainer.read_text() == "import jax\n"
    options = ("--conformance-compare", old, "--fail-on", "worse")
    assert_refused(run_suites(*MINIMAL, *options), "'worse' is no class; expected some of regressed, gone")


def test_a_report_that_cannot_be_written_at_the_end_is_told():
    """In a line: what was judged was judged, and is not kept."""
    run = run_suites(*MINIMAL, "--conformance-report", "/dev/full")
    assert run.returncode == 3, run.stdout
    assert "--conformance-report /dev/full: No space left on device; the report is not written" in run.stderr
    assert "INTERNALERROR" not in run.stdout + run.stderr
