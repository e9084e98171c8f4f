"""Several processes of one command: one report, and whoever dies or is stuck is named and takes the others along."""

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from meshproof.launching.group import Group
from meshproof.launching.marks import Marks, mark
from tests.implementations.hanging import is_gone

pytestmark = pytest.mark.newest_stack

ROOT = Path(__file__).parents[2]

LAUNCH = [sys.executable, "-m", "meshproof", "launch"]
PYTHON = ["--", sys.executable, "-c"]


def launch(*words, limit=120):
    """What was printed, and the exit code."""
    return subprocess.run([*LAUNCH, *map(str, words)], capture_output=True, text=True, timeout=limit)


@pytest.mark.parametrize("processes", [2, pytest.param(4, marks=pytest.mark.thorough)])
def test_the_page_trains_as_one_process_does(processes):
    """The losses are those of one process to the last printed digit, and process 0 alone reports."""
    page = ["--", sys.executable, "-m", "reference_impl.lifecycle.multiprocess"]
    losses = [re.findall(r"^step \d: loss .*", launch("-n", n, *page).stdout, re.M) for n in (1, processes)]
    assert len(losses[0]) == 5 and losses[0] == losses[1]


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("SIGKILL", "process 1 was killed by SIGKILL; its last mark is step 2"),
        ("SIGSTOP", "process 1 is stopped by SIGSTOP; its last mark is step 2"),
        ("sleep", "process 1 is stuck: its last mark is step 2, more than 6 s ago, while process 0 is at step 3"),
        ("raise", "process 1 raised OSError: the disk is full, and has not ended since"),
    ],
)
def test_a_process_that_dies_or_is_stuck_is_named(tmp_path, how, told):
    """With its last step; the other, which waits for it in a collective, is ended, and none survives."""
    script = ["--", sys.executable, "-m", "tests.implementations.lockstep", how, tmp_path]
    run = launch("-n", 2, "--stuck-after", 6, *script)
    assert run.returncode == 1 and told in run.stderr, run.stdout + run.stderr
    assert "step 2: loss" in run.stdout and "step 3" not in run.stdout
    assert all(is_gone(int((tmp_path / number).read_text())) for number in "01")


def test_a_death_is_told_at_once():
    """Though the other process would sleep for ever; and its child is gone as well."""
    begun = time.monotonic()
    run = launch(
        *PYTHON, "import os, sys, time; sys.exit(3) if os.environ['JAX_PROCESS_ID'] == '1' else time.sleep(99)"
    )
    assert (run.returncode, time.monotonic() - begun < 10) == (1, True)
    assert "process 1 exited with code 3; it marked no step; all 2 processes are ended" in run.stderr


def test_a_limit_ends_what_marks_nothing():
    """A command that marks no step is not stuck to anybody who looks: the limit of all of it remains."""
    run = launch("--timeout", 1, *PYTHON, "import time; time.sleep(99)", limit=30)
    assert run.returncode == 1 and "expected every process to end within 1 s, 2 still run" in run.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["-n", "3", "--", "true"], "8 devices do not divide among 3 processes"),
        (["-n", "0", "--", "true"], "8 devices do not divide among 0 processes"),
        (["--stuck-after", "nan", "--", "true"], "--stuck-after nan: expected a number of seconds above 0"),
        (["--timeout", "0", "--", "true"], "--timeout 0: expected a number of seconds above 0"),
        (["--", "no_such_command"], "no_such_command: cannot be started: No such file or directory"),
    ],
)
def test_what_cannot_work_is_refused(words, told):
    """In words that say what to write instead."""
    run = launch(*words)
    assert run.returncode == 2 and told in run.stderr


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({"JAX_COORDINATOR_ADDRESS": "127.0.0.1:1"}, "JAX_NUM_PROCESSES and JAX_PROCESS_ID: not set"),
        ({"JAX_NUM_PROCESSES": "two"}, "JAX_NUM_PROCESSES is 'two', expected a whole number"),
        ({"JAX_PROCESS_ID": "2"}, "JAX_PROCESS_ID is 2, expected one from 0 to 1, since JAX_NUM_PROCESSES is 2"),
    ],
)
def test_joining_without_knowing_whom_is_an_error(variables, told):
    """It says which variable, and what was expected."""
    from reference_impl.lifecycle.multiprocess import join

    whole = {"JAX_COORDINATOR_ADDRESS": "127.0.0.1:1", "JAX_NUM_PROCESSES": "2", "JAX_PROCESS_ID": "1"}
    given = variables if "JAX_COORDINATOR_ADDRESS" in variables else whole | variables
    with pytest.raises(ValueError, match=re.escape(told)):
        join(given)


@pytest.mark.parametrize(
    ("mistake", "told"),
    [
        ("JAX_PROCESS_ID=2", "two processes are process 2 of 4: expected each to have a number of its own"),
        ("JAX_NUM_PROCESSES=5", "process 1 counts 5 processes, process 0 counts 4: expected one number everywhere"),
    ],
)
def test_processes_that_cannot_be_a_group_say_why(mistake, told):
    """At once, where JAX would end them by SIGABRT after a minute, or go on with fewer."""
    page = f"{sys.executable} -m reference_impl.lifecycle.multiprocess"
    begun = time.monotonic()
    run = launch("-n", 4, "--", "sh", "-c", f"test $JAX_PROCESS_ID = 1 && export {mistake}; exec {page}")
    assert run.returncode == 1 and f"RuntimeError: {told}" in run.stderr, run.stdout + run.stderr
    assert time.monotonic() - begun < 45


def test_joining_without_a_cluster_is_an_error():
    """In a process that has asked for no device yet: JAX refuses every other."""
    code = "from reference_impl.lifecycle.multiprocess import join; join({})"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert run.returncode == 1 and "RuntimeError: no coordinator: " in run.stderr, run.stderr


def test_who_lags_is_told_by_marks(tmp_path):
    """From the moment on at which another is ahead, and only while it marks nothing itself."""
    marks = Marks(tmp_path)
    marks.read(2, now=0.0)
    assert marks.laggards(now=100.0, patience=5.0) == []
    mark(tmp_path, 0, 1, "step 1")
    marks.read(2, now=100.0)
    assert marks.laggards(now=104.0, patience=5.0) == []
    assert marks.laggards(now=106.0, patience=5.0) == [1] and marks.last(1) == "it marked no step"
    mark(tmp_path, 1, 1, "step 1")
    marks.read(2, now=107.0)
    assert marks.laggards(now=900.0, patience=5.0) == []


def test_a_mark_that_is_being_written_is_none_yet(tmp_path):
    """A script may write it in place: until it is whole the last one counts."""
    marks = Marks(tmp_path)
    for written, last in (
        ("", "it marked no step"),
        ("1 step 1", "its last mark is step 1"),
        ("", "its last mark is step 1"),
    ):
        (tmp_path / "0").write_text(written)
        marks.read(1, now=0.0)
        assert marks.last(0) == last


@pytest.mark.parametrize("written", ["STEP 3", "step 3\n", "3", "\xff"])
def test_a_mark_that_is_not_understood_is_told(tmp_path, written):
    """With what was expected; a mark that was understood before remains the last."""
    (tmp_path / "0").write_text(written, encoding="latin-1")
    marks = Marks(tmp_path)
    marks.read(2, now=0.0)
    shown = repr(written).replace("\xff", "\ufffd")
    assert marks.last(0) == f"its mark {shown} is not understood (expected a number and a text, as 3 step 3)"
    assert (marks.last(1), marks.after(0)) == ("it marked no step", "and left a mark that is not understood")
    mark(tmp_path, 0, 4, "step 4")
    marks.read(2, now=0.0)
    assert (marks.last(0), marks.after(0)) == ("its last mark is step 4", "after step 4")
    (tmp_path / "0").write_text("STEP 5")
    marks.read(2, now=0.0)
    assert marks.last(0) == "its last mark is step 4"


def test_where_all_stand_is_told_of_marks_that_are_not_understood(tmp_path):
    """Once, before any limit: nobody would learn otherwise that no step is known."""
    notices = []
    (tmp_path / "1").write_text("STEP 3")
    with Group([sys.executable, "-c", "import time; time.sleep(6)"], 2, 8, tmp_path) as group:
        assert group.watch(stuck_after=2.0, notice=notices.append) is None
    assert re.match(
        r"no process has marked a step for \d s; all go on\nprocess 0: it marked no step; .*\n"
        r"process 1: its mark 'STEP 3' is not understood \(expected a number and a text, as 3 step 3\); it ",
        notices[0],
    )


def test_one_that_left_is_told_from_one_that_is_stuck(tmp_path):
    """A process that has ended well while another waits for it is named as ended."""
    mark(tmp_path, 0, 2, "step 2")
    code = "import os, time; time.sleep(99 * (os.environ['JAX_PROCESS_ID'] == '0'))"
    with Group([sys.executable, "-c", code], 2, 8, tmp_path) as group:
        fault = group.watch(stuck_after=1.0, limit=20.0)
    assert str(fault) == ("process 1 has ended: it marked no step, more than 1 s ago, while process 0 is at step 2")
