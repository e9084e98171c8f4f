"""Ctrl-C ends a run: nothing is observed after it, nothing stays behind, and what was judged is told."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from types import SimpleNamespace

import pytest

from meshproof.judging.records import Record
from meshproof.run.conformance import NAME, Conformance
from meshproof.run.recording import build_report
from tests.implementations.hanging import GRANDCHILD, is_gone

TRAINERS = """
from tests.implementations.hanging import Hanging, InInit

def strategies():
    return [Hanging("sound"), InInit("in_init")]
"""


SLEEPING = """
import os, pathlib, time

def strategies():
    pathlib.Path("started").write_text(str(os.getpid()))
    time.sleep(10_000)
"""

COMMAND = """
import signal
from meshproof.cli import app
signal.signal(signal.SIGINT, signal.default_int_handler)
for each in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(each, signal.SIG_DFL)
app()
"""
"""As a shell starts it, also where these tests run under nohup, which would be passed on."""

AS_ON_A_TERMINAL = """
import signal, sys, pytest
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(pytest.main(sys.argv[1:]))
"""
"""What a shell starts in the background ignores Ctrl-C, and so would all that it starts."""


@pytest.mark.parametrize("workers", ["0", "2"])
def test_an_interrupted_run_ends_and_counts_what_it_judged(tmp_path, workers):
    """It does not wait for the case that hung, nor ask its process for anything; that process is ended."""
    (tmp_path / "trainers.py").write_text(TRAINERS, encoding="utf-8")
    shown, started, report = (tmp_path / name for name in ("shown", "started", "report.json"))
    command = [sys.executable, "-c", AS_ON_A_TERMINAL, "suites", "-v", "-p", "no:cacheprovider", "-p", "no:randomly"]
    command += ["--impl", "trainers", "--case-timeout", "600", "-k", "runs_are_bitwise", "-n", workers]
    command += ["--conformance-report", str(report)]
    with shown.open("w", encoding="utf-8") as file:
        variables = os.environ | {GRANDCHILD: str(started), "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
        run = subprocess.Popen(command, stdout=file, stderr=file, env=variables, start_new_session=True)
        try:
            while not ("PASSED" in shown.read_text(encoding="utf-8") and started.exists() and started.read_text()):
                assert run.poll() is None, shown.read_text(encoding="utf-8")
                time.sleep(0.2)
            os.killpg(run.pid, signal.SIGINT)
            assert run.wait(60) == pytest.ExitCode.INTERRUPTED, shown.read_text(encoding="utf-8")
        finally:
            run.kill()
    told = shown.read_text(encoding="utf-8")
    assert "INTERNALERROR" not in told and "1 proved" in told, told
    record = json.loads(report.read_text(encoding="utf-8"))
    assert record["environment"] and not record["run"]["finished"], told
    assert is_gone(int(started.read_text(encoding="utf-8")))


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_command_that_is_ended_ends_what_it_started(tmp_path, sent):
    """A scheduler's signal is heard as Ctrl-C is: a compiler would go on for minutes, and nobody would know why."""
    (tmp_path / "sleeping.py").write_text(SLEEPING, encoding="utf-8")
    started = tmp_path / "started"
    command = [sys.executable, "-c", COMMAND, "plan", "--impl", "sleeping", "--hardware", "h100", "--chips", "8"]
    variables = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, cwd=tmp_path, env=variables, stderr=subprocess.PIPE, text=True) as process:
        while not (started.exists() and started.read_text()):
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.2)
        process.send_signal(sent)
        try:
            assert process.wait(60) == 130, process.stderr.read()
        finally:
            process.kill()
    assert is_gone(int(started.read_text(encoding="utf-8")))


def test_what_a_worker_judged_is_counted_though_it_sends_no_clauses():
    """One that Ctrl-C ends early sends the reports of its tests alone: a failure would be counted as none."""
    record = Record("suites/test_a.py::test_a", "NUM-1", "It MUST.", None, status="failed")
    report = SimpleNamespace(nodeid=record.id, user_properties=[(NAME, asdict(record))])
    run = SimpleNamespace(sign=None, records={}, clauses={})
    Conformance.pytest_runtest_logreport(run, report)
    told = build_report("trainers", {}, run.clauses, run.records.values(), [], {})
    assert [(clause["id"], clause["status"]) for clause in told["clauses"]] == [("NUM-1", "failed")]
