"""`meshproof upgrade`, as its user runs it: two environments, one of them with a patched package."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from meshproof.cli import app
from meshproof.comparison import Difference, compare
from meshproof.environments import Environment, describe
from meshproof.timing.ab import Paired
from meshproof.timing.comparison import Comparison
from meshproof.timing.ratios import compare_pairs
from meshproof.upgrade.runs import RunError, run_suites
from meshproof.upgrade.upgrading import KINDS, TIMES, judge, next_step
from tests.comparing import CASES, report
from tests.stacks import make_faster, make_stack


@pytest.fixture(scope="module")
def stacks(tmp_path_factory):
    """The same stack twice; in the second, a package was patched without a word: its optimizer learns faster."""
    folders = [tmp_path_factory.mktemp("stacks") / name for name in ("old", "new")]
    packages = [make_stack(folder) for folder in folders]
    make_faster(packages[1])
    return folders


def upgrade(*words):
    """The command."""
    return CliRunner().invoke(app, ["upgrade", *map(str, words)])


def test_a_patched_package_is_the_first_line_of_the_verdict(stacks, tmp_path):
    """No version differs and no clause fails, for each side is judged by its own run; the losses tell."""
    chosen = ("--impl", "tests.implementations.adapters", "-k", "bare", "--output", tmp_path / "out")
    done = upgrade("--from", stacks[0], "--to", stacks[1], *chosen)
    assert done.exit_code == 1, done.output
    found = json.loads((tmp_path / "out" / "upgrade.json").read_text())
    assert found["verdict"] == "regressed"
    assert (found["differences"][0]["kind"], found["differences"][0]["place"]) == ("losses", "loss of step 2")
    assert "loss of step 2" in found["sentence"] and found["sentence"] in done.stdout
    assert "suites on --from" in done.stderr and "suites on --to" in done.stderr
    html, markdown = ((tmp_path / "out" / f"upgrade.{name}").read_text() for name in ("html", "md"))
    assert "loss of step 2" in html and markdown.startswith("### Regressed between two runs on jax")
    assert found["next"] is None  # no release differs


def test_a_checkpoint_that_the_other_stack_reads_otherwise_is_told(stacks, tmp_path):
    """The suites say the same of both: only who restores what the other has saved sees other numbers."""
    chosen = ("--impl", "tests.implementations.exchanged", "-k", "restore_bitwise and (drifts or kept)")
    done = upgrade("--from", stacks[0], "--to", stacks[0], "--checkpoints", *chosen, "--output", tmp_path / "out")
    assert done.exit_code == 1, done.output
    found = json.loads((tmp_path / "out" / "upgrade.json").read_text())
    assert (
        found["sentence"].startswith("Regressed") and "first CKP-4, saved by --from and restored by --to" in done.stdout
    )
    assert [(each["change"], each["kind"], each["case"]) for each in found["differences"]] == [
        ("regressed", "checkpoint", "drifts-jax-mlp@data=8"),
        ("changed", "checkpoint", "drifts-jax-mlp@data=8"),
    ]
    assert "those of --from are restored by --to" in done.stderr


def test_without_suites_nothing_is_made(stacks, tmp_path, monkeypatch):
    """Where there are none to run, that is said, and not that pytest knows no option."""
    monkeypatch.setattr("meshproof.installation.PACKAGE", tmp_path)
    monkeypatch.setenv("MESHPROOF_CACHE", str(tmp_path / "cache"))
    for words in (["upgrade", "--from", stacks[0], "--to", stacks[1]], ["bisect", "--good", "a==1", "--bad", "a==2"]):
        done = CliRunner().invoke(app, [*map(str, words)])
        assert done.exit_code == 2 and "no suites/test_*.py in" in done.stderr, done.output
    assert not (tmp_path / "cache").exists()


def test_a_file_for_the_folder_is_refused(tmp_path):
    """Before an environment is made: its requirements are never read."""
    (tmp_path / "file").write_text("kept")
    done = upgrade("--from", "no requirement", "--to", "another", "--output", tmp_path / "file")
    assert done.exit_code == 2
    assert done.stderr.startswith(f"meshproof: --output {tmp_path / 'file'}: nothing can be written in "), done.stderr


def test_expectations_reach_both_runs(stacks, tmp_path):
    """What is known to fail is told to the suites: a file that is not there is refused by them, by name."""
    chosen = ("--impl", "tests.implementations.adapters", "-k", "bare", "--output", tmp_path / "out")
    done = upgrade("--from", stacks[0], "--to", stacks[1], *chosen, "--expectations", "known.toml")
    assert done.exit_code == 2 and "known.toml" in done.stderr


def test_an_unknown_clause_is_no_search():
    """A typo is refused before the first environment is made."""
    done = CliRunner().invoke(app, ["bisect", "--good", "jax==0.10.2", "--bad", "jax==0.11.0", "--clause", "COM-99"])
    assert done.exit_code == 2 and "--clause 'COM-99': no test in suites/ judges it" in done.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["-k", "fsdp@data=8"], "-k 'fsdp@data=8': unexpected character"),
        (["--fail-on", "all"], "'all' is no class"),
        (["--from-python", "3.12"], "is an environment, which has its Python"),
    ],
)
def test_what_cannot_be_asked_is_one_error(stacks, tmp_path, words, told):
    """Before anything runs, and nothing is written."""
    done = upgrade("--from", stacks[0], "--to", stacks[1], "--output", tmp_path / "out", *words)
    assert done.exit_code == 2 and told in done.stderr and done.stderr.count("\n") == 1
    assert not list(tmp_path.glob("out/*"))


def test_a_run_without_a_report_says_what_it_printed(stacks, tmp_path):
    """An implementation that is not there: no verdict, and the older run's report is not taken for this one's."""
    path = tmp_path / "report.json"
    path.write_text("{}")
    environment = describe(stacks[0] / "bin" / "python")
    with pytest.raises(RunError, match=r"no report:\n(.|\n)*no.such.module: the module cannot be imported"):
        run_suites(environment, ["--impl", "no.such.module"], path)
    assert isinstance(environment, Environment) and not path.exists()


@pytest.mark.thorough
def test_a_case_that_hangs_is_told_of_both_sides(stacks, tmp_path):
    """The limit reaches both runs, which go on; the command that finds the release to blame has it, too."""
    chosen = ("--impl", "tests.implementations.hanging", "-k", "runs_are_bitwise and (stopped or after)")
    done = upgrade("--from", stacks[0], "--to", stacks[1], *chosen, "--case-timeout", "20", "--output", tmp_path)
    assert done.exit_code in (0, 2), done.output
    for side in ("from", "to"):
        found = json.loads((tmp_path / f"upgrade-{side}.json").read_text(encoding="utf-8"))
        statuses = {test["case"]: test for clause in found["clauses"] for test in clause["tests"]}
        assert statuses["after-jax-line@data=2"]["status"] == "proved"
        assert "within 20 s, its process was stopped by SIGSTOP" in statuses["stopped-jax-line@data=2"]["message"]


def test_a_run_that_says_nothing_is_ended(stacks, tmp_path, monkeypatch):
    """Where pytest itself hangs, as while it imports the implementation: no report, and where it stood."""
    (tmp_path / "stuck.py").write_text("import threading\nthreading.Event().wait()\n", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr("meshproof.upgrade.runs.COLLECTING", 30.0)
    environment = describe(stacks[0] / "bin" / "python")
    with pytest.raises(RunError, match=r"the suites printed nothing for 36 s:\n(.|\n)*stuck.py") as raised:
        run_suites(environment, ["--impl", "stuck"], tmp_path / "report.json", case_timeout=1)
    assert "main thread:" in str(raised.value)


def test_the_limit_is_passed_on(stacks, tmp_path, monkeypatch):
    """By `upgrade` and `bisect`, to each run."""
    asked = []

    def run(*_, case_timeout):
        asked.append(case_timeout)
        return report(jax="0.10.2" if len(asked) == 1 else "0.11.0")

    monkeypatch.setattr("meshproof.upgrade.runs.run_suites", run)
    monkeypatch.setattr(
        "meshproof.environments.make_environment", lambda stack: Environment(Path(*stack.requirements), ())
    )
    good, bad = ("--good", "jax==0.10.2"), ("--bad", "jax==0.11.0")
    done = CliRunner().invoke(app, ["bisect", *good, *bad, "--case-timeout", "40"])
    assert asked == [40.0, 40.0], done.output
    asked.clear()
    monkeypatch.setattr("meshproof.upgrade.upgrading.run_suites", run)
    done = upgrade("--from", stacks[0], "--to", stacks[0], "--case-timeout", "50", "--output", tmp_path)
    assert asked == [50.0, 50.0], done.output


@pytest.fixture
def hears_interruptions():
    """What is started hears Ctrl-C, also where the tests run in the background, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("hears_interruptions")
def test_an_interruption_is_no_verdict_and_leaves_whole_files(stacks, tmp_path):
    """Ctrl-C, while the suites run: neither 0 nor 1, and a report that says that its run broke off.

    The verdict of an upgrade before it does not stay beside that.
    """
    for kind in KINDS:
        (tmp_path / f"upgrade.{kind}").write_text("{}")
    command = [sys.executable, "-c", "from meshproof.cli import app; app()", "upgrade", "--from", stacks[0]]
    command += ["--to", stacks[0], "--impl", "tests.implementations.adapters", "--output", tmp_path]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert any("suites on --from" in line for line in process.stderr)  # JAX may say first that it has no GPU
        os.killpg(process.pid, signal.SIGINT)
        said = process.stderr.read()
    assert process.returncode == 130 and "interrupted: there is no verdict" in said
    reports = [json.loads(path.read_text()) for path in tmp_path.glob("*.json")]
    assert not any(found["run"]["finished"] for found in reports) and not list(tmp_path.glob("upgrade.*"))


def timed(outcome):
    """What `meshproof ab` says of one benchmark."""
    ratio = compare_pairs([1.0] * 8, [1.3] * 8)
    return Paired(Comparison("benchmarks/test_step_time.py::test[fsdp]", outcome, (), ratio, (1.0, 1.3)))


@pytest.mark.parametrize(
    ("told", "change"),
    [
        ("--from failed: OSError; --to skipped: not timed", "changed"),
        ("--to failed: OSError", "regressed"),
    ],
)
def test_what_fails_on_the_old_stack_alone_is_no_regression(told, change):
    """Of the new one nothing is known."""
    paired = timed("failed")
    broken = replace(paired, comparison=replace(paired.comparison, details=tuple(told.split("; "))))
    [found] = [each for each in judge([report(), report()], [broken]).differences if each.kind == "time"]
    assert found.change == change


@pytest.mark.parametrize("outcome", TIMES)
def test_every_verdict_on_a_time_is_a_class(outcome):
    """A slower step regresses, one that cannot be told is ambiguous, and none is lost."""
    comparison = judge([report(), report()], [timed(outcome)])
    told = [each for each in comparison.differences if each.kind == "time"]
    if outcome == "same":
        assert not told and comparison.same == compare(report(), report()).same + 1
    else:
        assert [each.change for each in told] == [TIMES[outcome]]
        assert ("ambiguous" if outcome == "cannot tell" else outcome) in told[0].new


def test_advice_names_the_clause_and_the_case():
    """And the releases that differ: only where something regressed that a run of one case shows again."""
    comparison = compare(report(jax="0.11.0"), report())
    assert next_step(comparison) is None
    failed = Difference("regressed", "clause", CASES[0], "COM-4", "proved", "failed")
    words = "meshproof bisect --good jax==0.11.0 --bad jax==0.12.0.1 -k fsdp-jax-toy --impl mine --clause COM-4"
    assert next_step(replace(comparison, differences=(failed,)), ["--impl", "mine"]) == words
    kept = next_step(replace(comparison, differences=(failed,)), [], "jax==0.11.0,numpy==2.5.5, optax>=0.2")
    assert kept and "--good jax==0.11.0,numpy==" in kept and "--bad jax==0.12.0.1,numpy==" in kept
    assert "optax" not in kept


def test_a_local_wheel_is_no_release_to_bisect():
    """Though the version is an index's too, and another package moved as well."""
    packages = {"optax": "0.2.8 of optax-0.2.8-py3-none-any.whl"}
    failed = Difference("regressed", "clause", CASES[0], "COM-4", "proved", "failed")
    comparison = replace(compare(report(numpy="2.5.0"), report(packages=packages)), differences=(failed,))
    assert next_step(comparison) is None
    assert "from optax 0.2.8 to optax 0.2.8 of optax-0.2.8-py3-none-any.whl" in comparison.sentence
