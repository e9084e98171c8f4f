"""A group that loses a process and does not say which, or at which step, is caught by MPR-2 and MPR-3."""

import json
import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from meshproof.observing import lost_processes
from meshproof.observing.lost_processes import Losses, find_command, observe_loss, own_paths
from meshproof.observing.seen import Failed, NotExercised, NotSupported
from tests.implementations import lost, minimal
from tests.waiting import within

CAUGHT = {
    ("healthy", "MPR-2"): None,
    ("healthy", "MPR-3"): None,
    (
        "unnamed",
        "MPR-2",
    ): "after SIGKILL of process 1: expected a line that names process 1, the last was: a process was l",
    (
        "unnamed",
        "MPR-3",
    ): "after SIGSTOP of process 1: expected a line that names process 1, the last was: a process was l",
    ("placeless", "MPR-2"): None,
    (
        "placeless",
        "MPR-3",
    ): r"after SIGSTOP of process 1 at step (\d+): expected a line with both, saw: process 1 was lost",
    (
        "unalarmed",
        "MPR-2",
    ): "after SIGKILL of process 1: expected an exit code that is not 0, saw 0: as if all were well",
    (
        "unalarmed",
        "MPR-3",
    ): "after SIGSTOP of process 1: expected an exit code that is not 0, saw 0: as if all were well",
    ("survived", "MPR-2"): "after SIGKILL of process 1: expected no process to be left, saw 1",
    ("survived", "MPR-3"): "after SIGSTOP of process 1: expected no process to be left, saw 2",
}
"""What is said of each group by each clause; nothing where it passes."""


def judged(how, folder):
    """The status and message of each clause in a run of the suites."""
    report = folder / f"{how}.json"
    arguments = ["suites/test_lost_processes_are_named.py", "-k", "not asleep", "--impl", lost.__name__, "-q"]
    variables = os.environ | {lost.CHOSEN: how}
    command = [sys.executable, "-m", "pytest", "-p", "no:randomly", *arguments, "--conformance-report", str(report)]
    run = subprocess.run(command, capture_output=True, text=True, env=variables, timeout=200)
    assert report.exists(), run.stdout + run.stderr
    clauses = json.loads(report.read_text(encoding="utf-8"))["clauses"]
    return {clause["id"]: (test["status"], test["message"]) for clause in clauses for test in clause["tests"]}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Group to the status and message of each clause, two runs at a time."""
    folder, hows = tmp_path_factory.mktemp("lost"), dict.fromkeys(how for how, _ in CAUGHT)
    with ThreadPoolExecutor(2) as pool:
        return dict(zip(hows, pool.map(lambda how: judged(how, folder), hows), strict=True))


@pytest.mark.parametrize(("how", "clause"), CAUGHT, ids="-".join)
def test_the_clause_says_so(runs, how, clause):
    """By name, with what was expected and seen; a healthy group passes."""
    status, message = runs[how][clause]
    told = CAUGHT[how, clause]
    assert status == ("failed" if told else "proved"), message
    assert not told or (message.startswith(f"{clause} is violated: ") and re.search(told, message)), message


def seen(how, harm, monkeypatch):
    """What is seen of a group when its process 1 comes to harm."""
    monkeypatch.setenv(lost.CHOSEN, how)
    return observe_loss(find_command(lost), harm, os.environ)


def test_who_never_marks_cannot_be_placed(monkeypatch):
    """The launcher names it, and nobody knows its step."""
    monkeypatch.setattr(lost_processes, "MARKING", 1.0)
    found = seen("unmarked", signal.SIGSTOP, monkeypatch)
    assert list(found.problems()) == []
    assert list(found.unplaced()) == [
        "process 1 marked no step within 1 s, expected it in the file 1 of the folder $MESHPROOF_MARKS"
    ]


@pytest.mark.parametrize(
    ("how", "told"),
    [("impatient", []), ("placeless", ["after sleep of process 1: expected all to end within 30 s, they still ran"])],
)
def test_a_process_that_falls_asleep_is_named(how, told, monkeypatch):
    """By who looks at its marks. Who looks for signals alone waits, as JAX's heartbeats do: they go on."""
    monkeypatch.setattr(lost_processes, "ENDING", 30.0)
    found = seen(how, "sleep", monkeypatch)
    assert [*found.problems(), *found.unplaced()][:1] == told, found.said


def test_who_marks_no_more_does_not_fall_asleep(monkeypatch):
    """Nothing is known of it then."""
    monkeypatch.setattr(lost_processes, "MARKING", 1.0)
    found = seen("unmarked", "sleep", monkeypatch)
    assert isinstance(found, NotExercised) and "no file of a mark of process 1 within 1 s" in found.reason


def test_who_ends_by_itself_was_not_harmed(monkeypatch):
    """That is said, with its last mark and words."""
    found = seen("short", signal.SIGKILL, monkeypatch)
    assert isinstance(found, Failed), found
    assert "ended by itself with code 0, expected it to train until it is ended; the last mark of process 1 was" in (
        found.reason
    )


def test_another_python_finds_its_own_libraries(tmp_path):
    """Of the folders in which this one looks those that are its own are not handed on."""
    mine = [str(tmp_path / "mine"), str(tmp_path / "mine.zip")]
    assert list(own_paths(os.pathsep.join([*mine, *sys.path]))) == [
        *mine,
        *(path for path in sys.path if path and not path.startswith((sys.prefix, sys.base_prefix))),
    ]


def test_who_asks_and_is_killed_leaves_nothing(tmp_path):
    """The command ends with it, though it could not be told."""
    pid, asking = tmp_path / "pid", "import os, sys; from meshproof.observing.lost_processes import observe_loss; "
    asking += "observe_loss(sys.argv[1:], 9, os.environ)"
    command = [sys.executable, "-c", "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); "]
    command[-1] += "time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", asking, *command, str(pid)]) as asks:
        started = within(60, lambda: pid.exists() and pid.read_text())
        asks.kill()
    assert started and within(10, lambda: not lost_processes.is_running(int(started)))


def test_harms_that_are_expected_go_on_side_by_side(monkeypatch):
    """And what observing one raises is raised by whoever asks for it."""
    both = Barrier(2)

    def observed(command, how, environment):
        both.wait(60)
        return Failed(how) if how == "sleep" else 1 / 0

    monkeypatch.setattr(lost_processes, "observe_loss", observed)
    monkeypatch.setenv(lost.CHOSEN, "healthy")
    losses = Losses(lost, {}, [signal.SIGSTOP, "sleep"])
    assert losses.of("sleep") == Failed("sleep")
    with pytest.raises(ZeroDivisionError):
        losses.of(signal.SIGSTOP)
    assert Losses(minimal, {}, []).of("sleep") == find_command(minimal)


def test_an_unwatched_group_waits_for_ever(monkeypatch, tmp_path):
    """Until the limit, and both are ended then."""
    monkeypatch.setattr(lost_processes, "ENDING", 1.0)
    unwatched = "import os, subprocess, sys; [e.wait() for e in [subprocess.Popen([sys.executable, *sys.argv[1:]], env="
    unwatched += "os.environ | {'JAX_PROCESS_ID': n, 'MESHPROOF_MARKS': os.environ['FOLDER']}) for n in '01']]"
    command = [sys.executable, "-c", unwatched, *lost.MEMBER]
    found = observe_loss(command, signal.SIGSTOP, os.environ | {"FOLDER": str(tmp_path)})
    assert "after SIGSTOP of process 1: expected all to end within 1 s, they still ran" in list(found.problems())


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (["no_such_command"], "several_processes: no_such_command cannot be started: No such file or directory"),
        ([sys.executable, "-c", "print('alone')"], "several_processes started 0 processes with JAX_PROCESS_ID 0 and 1"),
    ],
)
def test_what_starts_no_group_is_told(command, told):
    """With what it said."""
    found = observe_loss(command, signal.SIGKILL, os.environ)
    assert isinstance(found, Failed) and told in found.reason, found


def test_an_implementation_without_processes_is_not_supported():
    """With the member's name."""
    found = find_command(minimal)
    assert isinstance(found, NotSupported) and "the implementation has no several_processes" in found.reason
