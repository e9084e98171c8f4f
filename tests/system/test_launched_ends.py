"""Processes of `meshproof launch` that end, or do not end, in ways that look like another one's fault: who is named."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from meshproof.launching import activity, watch
from meshproof.launching.group import Group
from tests.implementations.hanging import is_gone

pytestmark = pytest.mark.any_stack

needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processor time is read in /proc")

BEGIN = """
import atexit, os, subprocess, sys, threading, time
from pathlib import Path
number = int(os.environ["JAX_PROCESS_ID"])
def mark(step):
    own = Path(os.environ["MESHPROOF_MARKS"], str(number))
    own.with_suffix(".tmp").write_text(f"{step} step {step}")
    own.with_suffix(".tmp").replace(own)
def wait_at_exit():  # as JAX does
    atexit.register(time.sleep, 99)
def compute(seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until: pass
"""


@pytest.fixture(autouse=True)
def short_leave(monkeypatch):
    """One that raised may take less long than otherwise to be over: what is held here waits for ever."""
    monkeypatch.setattr(watch, "LEAVING", 1.5)


def watched(folder, script, stuck_after=45.0, limit=30.0, notice=None, command=(sys.executable, "-c")):
    """The fault that is found of two processes of a script, and the seconds that it took."""
    begun = time.monotonic()
    with Group([*command, BEGIN + script], 2, 8, folder) as group:
        fault = group.watch(stuck_after, limit, notice)
    return fault, time.monotonic() - begun


@pytest.mark.parametrize(
    ("end", "told"),
    [
        ("raise RuntimeError('the disk is full')", "raised RuntimeError: the disk is full"),
        ("sys.excepthook = print; {}['rate']", "raised KeyError: 'rate'"),
        ("threading.Thread(target=time.sleep, args=[99]).start(); raise OSError", "raised OSError"),
    ],
)
def test_a_process_whose_program_has_failed_need_not_end(tmp_path, end, told):
    """JAX holds it at exit for minutes, while the others wait for it: it is named at once, with its exception."""
    fault, took = watched(tmp_path, f"mark(3); wait_at_exit()\nif number == 1: {end}\ntime.sleep(99)")
    assert str(fault) == (
        f"process 1 {told}, and has not ended since: at exit JAX waits for the others; its last mark is step 3"
    )
    assert took < 6


def test_a_program_that_a_shell_runs_is_heard_too(tmp_path):
    """The shell is the process that the launcher started, and waits for it."""
    command = ["sh", "-c", f'{sys.executable} -c "$0"; exit $?']
    fault, _ = watched(
        tmp_path, "wait_at_exit()\nif number == 1: raise OSError('no space')\ntime.sleep(99)", command=command
    )
    assert fault.number == 1 and "raised OSError: no space" in fault.told


def test_of_several_that_failed_the_first_is_named(tmp_path):
    """What the others raise came of it, as does an abort; how it ended is told."""
    script = "if number == 1: raise ValueError('batch 7')\ntime.sleep(0.8)\nos.abort()"
    fault, _ = watched(tmp_path, f"wait_at_exit()\n{script}")
    assert fault.number == 1 and fault.told.startswith("raised ValueError: batch 7, and has not ended since")


@pytest.mark.parametrize(
    "end",
    [
        "subprocess.run([sys.executable, '-c', 'raise OSError'], stderr=subprocess.DEVNULL)",
        "atexit.register(time.sleep, 2.5)\ntry: sys.exit(3)\nexcept SystemExit: pass",
        "atexit.register(time.sleep, 2.5)\ntry: raise OSError\nexcept OSError: sys.exit(0)",
        "os.fork() or sys.exit(3)",
    ],
)
def test_what_a_program_gets_over_is_no_fault(tmp_path, end):
    """An error that it catches, and one of a process that it started, however long it takes to end."""
    assert watched(tmp_path, end)[0] is None


def test_the_programs_own_start_is_its_own(tmp_path):
    """Its `sitecustomize` still runs, and its path has nothing more."""
    (tmp_path / "sitecustomize.py").write_text("import os; os.environ['SEEN'] = 'yes'")
    variables = os.environ | {"PYTHONPATH": str(tmp_path)}
    command = [
        sys.executable,
        "-c",
        "import os, sys; print(os.environ['SEEN'], sys.path, sys.modules['sitecustomize'])",
    ]
    with Group(command, 1, 8, tmp_path, variables) as group:
        assert group.watch(limit=30.0) is None
        (said,) = group.last_words(0)
    plain = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=60).stdout
    assert said == plain.strip() and said.startswith("yes")


def test_a_program_that_was_not_told_its_number_tells_nothing(tmp_path):
    """And says nothing of that."""
    command = ["sh", "-c", f"unset JAX_PROCESS_ID; exec {sys.executable} -c 'raise OSError'"]
    with Group(command, 1, 8, tmp_path) as group:
        assert str(group.watch(limit=30.0)) == "process 0 exited with code 1; it marked no step"
        assert not any("sitecustomize" in line for line in group.last_words(0))


@needs_proc
@pytest.mark.parametrize(
    ("end", "told"),
    [
        ("os._exit(0)", "ended with code 0 after step 3"),
        ("wait_at_exit(); raise SystemExit(3)", "came to the end of its program after step 3"),
        ("wait_at_exit(); sys.exit('no data')", "called sys.exit('no data') after step 3"),
    ],
)
def test_a_process_that_goes_early_is_named(tmp_path, end, told):
    """Its exit code is that of success, and another waits for it in vain."""
    fault, _ = watched(tmp_path, f"mark(3)\nif number == 1: {end}\ntime.sleep(99)", stuck_after=1.2)
    assert str(fault) == f"process 1 {told}, process 0 waits after step 3, and has computed nothing for 1.2 s"


@needs_proc
def test_an_exit_with_an_error_is_told_before_it_is_over(tmp_path):
    """It may yet be caught, so that it counts only while the others wait; then not for as long as they might save."""
    fault, took = watched(tmp_path, "mark(3); wait_at_exit()\nif number == 1: sys.exit(3)\ntime.sleep(99)")
    assert fault.told.startswith("called sys.exit(3) after step 3, process 0 waits after step 3") and took < 6


def test_who_dies_of_one_that_went_early_names_it(tmp_path):
    """As JAX aborts those whose heartbeats it misses."""
    fault, _ = watched(tmp_path, "mark(3)\nif number == 1: os._exit(0)\ntime.sleep(1)\nos.abort()")
    assert str(fault) == (
        "process 0 was killed by SIGABRT; its last mark is step 3; before that process 1 ended with code 0 after step 3"
    )


def test_who_computes_alone_is_not_accused(tmp_path, monkeypatch):
    """One that evaluates after the others have gone is not stuck, and waits for nobody, however busy the machine is."""
    monkeypatch.setattr(activity, "IDLE", 0.01)
    fault, took = watched(tmp_path, "mark(3)\nif number == 0: compute(5)", stuck_after=3.0)
    assert fault is None and took > 5


@needs_proc
def test_at_the_limit_it_is_told_where_all_stand(tmp_path):
    """The last mark of each and its age, whether it computes, and at which line: all are at one mark."""
    notices = []
    script = "mark(3)\nif number == 1: compute(99)\ntime.sleep(99)"
    fault, _ = watched(tmp_path, script, stuck_after=2.5, limit=6.0, notice=notices.append)
    assert str(fault) == "expected every process to end within 6 s, 2 still run"
    zero, one = fault.details
    assert re.fullmatch(r"process 0: its last mark is step 3, \d s ago; it sleeps, at <string>:16 in <module>", zero)
    assert re.fullmatch(
        r"process 1: its last mark is step 3, \d s ago; it uses \d+% of a processor, at <string>:\d+ in compute", one
    )
    assert re.match(
        r"no process has marked a step for \d s; all go on\nprocess 0: its last mark is step 3, \d", notices[0]
    )


HEARING = """
import os, signal, sys
for each in (signal.SIGINT, signal.SIGHUP):
    signal.signal(each, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Starts a command that hears all signals: a job of a shell ignores one of these, under ``nohup`` the other."""

SLEEPER = "import os, pathlib, sys, time; pathlib.Path(sys.argv[1], os.environ['JAX_PROCESS_ID']).write_text(str(os.g"


@pytest.mark.parametrize(
    ("name", "code"), [("SIGTERM", 143), ("SIGHUP", 129), ("SIGINT", 130), ("SIGKILL", -signal.SIGKILL)]
)
def test_a_launcher_that_is_ended_ends_all(tmp_path, name, code):
    """By a scheduler, a terminal that is closed, a user, or in a way that it cannot hear of."""
    command = [sys.executable, "-m", "meshproof", "launch", "--", sys.executable, "-c"]
    command += [f"{SLEEPER}etpid())); time.sleep(99)", str(tmp_path)]
    started = subprocess.Popen([sys.executable, "-c", HEARING, *command], stderr=subprocess.PIPE, text=True)
    pids = []
    for _ in range(300):
        if len(pids := [path.read_text() for path in tmp_path.iterdir()]) == 2 and all(pids):
            break
        time.sleep(0.1)
    started.send_signal(signal.Signals[name])
    said = started.communicate(timeout=20)[1]
    assert started.returncode == code and len(pids) == 2, said
    assert name == "SIGKILL" or f"meshproof: got {name}; all 2 processes are ended" in said
    assert all(is_gone(int(pid)) for pid in pids)


SAVES = """
import os, pathlib, signal, sys, time
def save(*_):
    {save}
    mark("saved")
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
def mark(what): pathlib.Path(sys.argv[1], what + os.environ["JAX_PROCESS_ID"]).touch()
mark("begun")
time.sleep(99)
"""

POOL = """
import multiprocessing, os, pathlib, signal, sys, time
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
def mark(what): pathlib.Path(sys.argv[1], what + os.environ["JAX_PROCESS_ID"]).touch()
with multiprocessing.get_context("fork").Pool(2, signal.signal, (signal.SIGTERM, signal.SIG_DFL)) as pool:
    mark("begun")
    while not asked:
        pool.map(time.sleep, [0.3, 0.3])
mark("saved")
"""


def ended_by_sigterm(folder, program, grace, *signals, by=()):
    """What a launcher of two printed, its exit code, and the seconds that it took."""
    command = [sys.executable, "-m", "meshproof", "launch", "--grace", str(grace), "--", *by, sys.executable, "-c"]
    command += [program, str(folder)]
    started = subprocess.Popen([sys.executable, "-c", HEARING, *command], stderr=subprocess.PIPE, text=True)
    for _ in range(300):
        if len([*folder.glob("begun*")]) == 2:
            break
        time.sleep(0.1)
    begun = time.monotonic()
    for number in signals:
        started.send_signal(number)
        time.sleep(0.5)
    said = started.communicate(timeout=30)[1]
    return said, started.returncode, time.monotonic() - begun


def test_sigterm_is_passed_on(tmp_path):
    """A scheduler's end of a job: each process saves first."""
    said, code, _ = ended_by_sigterm(tmp_path, SAVES.format(save="time.sleep(1)"), 20, signal.SIGTERM)
    assert code == 143 and said.strip().endswith("meshproof: got SIGTERM; all 2 processes are ended")
    assert len([*tmp_path.glob("saved*")]) == 2 and "after it" not in said


@pytest.mark.parametrize("by", [(), ("sh", "-c", '"$0" "$@"; exit $?')])
def test_what_a_process_started_is_its_own_to_end(tmp_path, by):
    """Its loader is needed until the step is over; a shell passes nothing on, so that all that it runs is told."""
    program = SAVES.format(save="time.sleep(1)") if by else POOL
    said, code, took = ended_by_sigterm(tmp_path, program, 20, signal.SIGTERM, by=by)
    assert code == 143 and took < 15 and len([*tmp_path.glob("saved*")]) == 2, said


def test_who_could_not_save_is_named(tmp_path):
    """With its last words, as if nobody had asked it to end."""
    save = "if os.environ['JAX_PROCESS_ID'] == '1': raise OSError('the disk is full')"
    said, code, _ = ended_by_sigterm(tmp_path, SAVES.format(save=save), 20, signal.SIGTERM)
    assert code == 143 and [path.name for path in tmp_path.glob("saved*")] == ["saved0"]
    assert "meshproof: got SIGTERM; process 1 exited with code 1 after it" in said and "process 0" not in said
    assert "process 1: OSError: the disk is full" in said


@pytest.mark.parametrize(("grace", "signals", "least"), [(3, 1, 3), (25, 2, 0.5)])
def test_nobody_waits_for_ever_for_a_save(tmp_path, grace, signals, least):
    """The grace ends, or who signals twice does not wait for it."""
    program = SAVES.format(save="time.sleep(60)")
    said, code, took = ended_by_sigterm(tmp_path, program, grace, *[signal.SIGTERM] * signals)
    assert code == 143 and "got SIGTERM; all 2 processes are ended" in said
    assert least < took < 15 and not [*tmp_path.glob("saved*")]
    late = "process 1 has not ended 3 s after it, and is killed: it may not have saved"
    assert (late in said) == (signals == 1)


def test_nohup_is_obeyed():
    """A signal that was ignored when the command began ends nothing."""
    code = "import os, signal, time; time.sleep(1); os.kill(os.getppid(), signal.SIGHUP); time.sleep(1)"
    command = [sys.executable, "-m", "meshproof", "launch", "-n", "1", "--", sys.executable, "-c", code]
    deaf = ["/bin/sh", "-c", "trap '' HUP; exec \"$@\"", "sh"]  # as nohup does
    run = subprocess.run([*deaf, *command], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
