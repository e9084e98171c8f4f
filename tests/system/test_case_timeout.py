"""A run cannot hang: a case that never answers is a failed case that says where it stood, and the next is judged."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from filelock import FileLock
from typer.testing import CliRunner

from meshproof import children
from meshproof.cli import app
from meshproof.observing import process
from meshproof.observing.observation import Failed
from meshproof.observing.process import Observer, Settings
from tests.implementations.hanging import GRANDCHILD, is_gone

HANGING = "tests.implementations.hanging"
LIMIT = "20"
ANSWERS, RUNS, LOSSES = "cases_answer", "runs_are_bitwise_equal", "losses_equal_truth"
LATE = f"expected an observation within {LIMIT} s, saw none"
CAUGHT = {
    "in_init": (LATE, "tests/implementations/hanging.py", " in init"),
    "in_tracing": (LATE, "main thread:\n    File", "tests/implementations/hanging.py", " in step", "calls of JAX"),
    "in_compilation": (LATE, " in backend_compile_and_load"),
    "in_a_collective": (LATE, "another thread:", " in never"),
    "in_code": (LATE, " in init"),
    "stopped": (f"within {LIMIT} s, its process was stopped by SIGSTOP", " in init"),
    "in_a_thread_at_exit": ("exited with code 3", "sys.exit(3)"),
    "in_truth": (f"expected a truth within {LIMIT} s, saw none", " in train"),
    "asks": ("no state could be made: EOFError",),
    "reads_donated": (),
}
"""What is said of each trainer that hangs. Older versions say that `reads_donated` crashed, or are killed by it."""

KILLED = ("not-supported", "RUN-1 fails: the observing process was killed by SIGSEGV")


def run_suites(path, *arguments, **variables):
    """The suites on the trainers that hang."""
    command = [sys.executable, "-m", "pytest", "suites", "-q", "-p", "no:cacheprovider", "--impl", HANGING]
    command += ["--case-timeout", LIMIT, "--conformance-report", str(path), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | variables)


def read(path):
    """Each strategy's statuses and messages, by the file that judged it."""
    found = {}
    for clause in json.loads(path.read_text(encoding="utf-8"))["clauses"]:
        for test in clause["tests"]:
            name = test["id"].partition("::test_")[2].partition("[")[0]
            found.setdefault(test["case"].partition("-")[0], {})[name] = test["status"], test["message"]
    return found


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """What a run of two workers finds of every one of them, and the process that one of them started."""
    folder = tmp_path_factory.mktemp("judged")
    run = run_suites(
        folder / "report.json", "-n", "2", "-k", f"{ANSWERS} or {RUNS} or {LOSSES}",
        **{GRANDCHILD: str(folder / "grandchild")},
    )  # fmt: skip
    assert run.returncode == pytest.ExitCode.TESTS_FAILED, run.stdout + run.stderr
    return read(folder / "report.json"), int((folder / "grandchild").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", CAUGHT)
def test_a_hang_is_a_failed_case_that_says_where(judged, name):
    """One clause fails, with the limit, the stack and the option, and others name it; a truth costs no other clause."""
    if name == "reads_donated" and judged[0][name][RUNS] == KILLED:
        assert judged[0][name][ANSWERS][0] == "failed"
        return
    status, message = judged[0][name][{"in_truth": LOSSES, "reads_donated": RUNS}.get(name, ANSWERS)]
    assert status == "failed" and not [words for words in CAUGHT[name] if words not in message], message
    if name != "reads_donated":
        assert judged[0][name][ANSWERS][0] == ("proved" if name == "in_truth" else "failed")
    if LATE in message:
        assert "a larger --case-timeout" in message and message.endswith(f"--case-timeout {LIMIT}"), message
    if name == "in_truth":
        assert judged[0][name][RUNS][0] == "proved"
    elif name != "reads_donated":
        first = message.splitlines()[2].removesuffix("; its last words:")
        assert judged[0][name][RUNS] == ("not-supported", f"RUN-1 fails: {first.strip(' -')}")


def test_the_cases_beside_them_are_judged(judged):
    """What comes after a case that hung, crashed or raised is judged in a process that works."""
    assert judged[0]["after"][ANSWERS][0] == "proved"
    assert judged[0]["after"][RUNS][0] == "proved"
    assert judged[0]["judged_after"][LOSSES][0] == "proved"


def test_what_a_case_started_ends_with_it(judged):
    """The whole group of the process."""
    assert is_gone(judged[1])


def test_a_process_in_which_a_step_raised_is_not_used_again(tmp_path):
    """In one process too: its devices would end no program of the next case."""
    run = run_suites(tmp_path / "report.json", "-n", "0", "-p", "no:randomly", "-k", "runs_are and (donated or after)")
    found = read(tmp_path / "report.json")
    assert found["reads_donated"][RUNS][0] == "failed" or found["reads_donated"][RUNS] == KILLED, run.stdout
    assert found["after"][RUNS][0] == found["judged_after"][RUNS][0] == "proved", run.stdout


@pytest.mark.parametrize("seconds", ["0", "-3", "soon", "nan", "inf"])
def test_what_is_no_limit_is_refused(seconds):
    """Before anything is made, by each command, with what was expected."""
    told = f"--case-timeout {seconds}: expected a number of seconds above 0, such as 900"
    for words in (
        ["upgrade", "--from=a", "--to=a"],
        ["bisect", "--good=a==1", "--bad=a==2"],
        ["ab", "--from=a", "--to=a"],
    ):
        done = CliRunner().invoke(app, [*words, "--case-timeout", seconds])
        assert done.exit_code == 2 and told in done.stderr, done.output


def test_the_suites_refuse_it_too(tmp_path):
    """Before the first test."""
    run = run_suites(tmp_path / "report.json", "--case-timeout", "nan")
    told = "--case-timeout nan: expected a number of seconds above 0, such as 900"
    assert run.returncode == pytest.ExitCode.USAGE_ERROR and told in run.stderr, run.stderr


def observer(folder, implementation=HANGING, limit=LIMIT):
    """One that asks a process with two devices."""
    return Observer(Settings(implementation, 2, str(folder), case_timeout=float(limit)), "cpu")


def test_who_waits_for_another_waits_for_a_while(tmp_path, monkeypatch):
    """Where whoever observes a case neither answers nor ends, the others are told."""
    monkeypatch.setattr(process, "GRACE", 0.01)
    asks = observer(tmp_path, limit=0.1)
    with FileLock(f"{asks.kept('after')}.lock"):
        seen = asks.observation("after")
    assert isinstance(seen, Failed) and "an observation from another process of this run within 0.24 s" in seen.reason


def test_who_waits_for_another_gets_its_answer(tmp_path):
    """That it failed, too."""
    first, second = observer(tmp_path), observer(tmp_path)
    process.replace_pickle(first.kept("after"), Failed("it hung"))
    assert second.observation("after") == Failed("it hung") and second.process is None


def test_a_process_that_never_starts_fails_every_case_once(tmp_path, monkeypatch):
    """Where even the import hangs, the second case is not waited for again."""
    (tmp_path / "stuck.py").write_text("import threading\nthreading.Event().wait()\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    asks = observer(tmp_path, "stuck", limit=20)  # on a busy machine imports alone take over five
    first, second = asks.observation("one"), asks.observation("two")
    assert first == second and "expected an observing process that is ready within 20 s" in first.reason
    assert "stuck.py" in first.reason


@pytest.fixture
def alone(tmp_path):
    """An observing process that was asked for the observation of a trainer, and nobody waits for its answer."""
    started = []

    def ask(name, limit):
        settings = Settings(HANGING, 2, str(tmp_path))
        command = [sys.executable, "-X", "faulthandler", "-m", "meshproof.observing", HANGING, "cpu", limit]
        variables = settings.environment("cpu") | {GRANDCHILD: str(tmp_path / "grandchild")}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        started.append(children.start(command, env=variables, bufsize=0, **pipes))
        assert next(children.lines(started[0], 100)) == "ready"
        request = {"ask": "observation", "case": f"{name}-jax-line@data=2", "path": str(tmp_path / "answer")}
        started[0].stdin.write(f"{json.dumps(request)}\n".encode())
        return started[0]

    yield ask
    for each in started:
        children.end(each)


def test_nothing_survives_who_asked(alone, tmp_path):
    """Where whoever asked is gone, the process ends, with all that it started, though its case hangs."""
    asked = alone("in_init", "1000")
    while not (tmp_path / "grandchild").exists() or not (tmp_path / "grandchild").read_text(encoding="utf-8"):
        assert asked.poll() is None, asked.stderr.read().decode()
        time.sleep(0.1)
    asked.stdin.close()
    assert asked.wait(20) == -signal.SIGKILL
    assert is_gone(int((tmp_path / "grandchild").read_text(encoding="utf-8")))


def test_what_cannot_be_told_ends_itself(alone):
    """Also in C code that keeps the interpreter's lock; it says where it stood."""
    asked = alone("in_code", "15")
    assert asked.wait(60) == 1
    assert " in init" in asked.stderr.read().decode()
