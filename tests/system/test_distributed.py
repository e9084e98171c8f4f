"""``pytest suites/`` over several processes: one report, in which what failed in any of them has failed."""

import json
import subprocess
import sys

import pytest

LAUNCH = [sys.executable, "-m", "meshproof", "launch", "-n", "2", "--timeout", "280", "--"]
PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider"]


def over_processes(*words):
    """The suites with these arguments in two processes."""
    return subprocess.run([*LAUNCH, *PYTEST, *words], capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The status and the message of each clause by strategy, of a failed test if there is one, and what was printed."""
    path = tmp_path_factory.mktemp("distributed") / "report.json"
    files = ["replicas_are_bitwise_equal", "losses_equal_truth", "shards_are_what_the_spec_implies"]
    files += ["runs_are_bitwise_equal", "checkpoints_restore_bitwise", "checkpoints_are_restored_elsewhere"]
    files += ["checkpoints_without_a_leaf_are_refused"]
    chosen = [f"suites/test_{name}.py" for name in files]
    done = over_processes(*chosen, "--impl", "tests.implementations.elsewhere", "--conformance-report", path)
    assert path.exists(), done.stdout + done.stderr
    report = json.loads(path.read_text())
    tests = {
        (clause["id"], test["case"].partition("-")[0]): (test["status"], test["message"])
        for clause in report["clauses"]
        for test in sorted(clause["tests"], key=lambda test: test["status"] == "failed")
    }
    assert done.returncode == 1, done.stdout + done.stderr
    return tests, done.stdout + done.stderr


def test_a_healthy_strategy_passes(run):
    """Its numbers and its shards are those of all processes."""
    assert {run[0][clause, "healthy"][0] for clause in ("NUM-4", "NUM-5", "NUM-6", "SHD-3")} == {"proved"}


def test_a_trainer_is_held_to_its_own_run_on_one_device(run):
    """In each process on one of its own devices: the others' it could not read."""
    assert {run[0][clause, "stranger"][0] for clause in ("NUM-4", "NUM-5", "NUM-6", "SHD-3")} == {"proved"}
    status, message = run[0]["NUM-4", "other_rows"]
    assert status == "failed" and "differs from truth" in message, message


def test_copies_that_differ_between_processes_are_seen(run):
    """Neither process can see it in its own copies."""
    status, message = run[0]["NUM-6", "drifts"]
    assert status == "failed" and "differs in bits between process 0 and process 1" in message, message


def test_a_process_that_dies_is_named_and_its_case_fails(run):
    """And the cases after it are observed by new processes."""
    status, message = run[0]["NUM-4", "SIGKILL"]
    assert status == "failed" and "over 2 processes: process 1 was killed by SIGKILL" in message, message


def test_a_process_that_is_stopped_is_named_before_those_that_waited(run):
    """JAX ends process 0 by SIGABRT, for it has lost the other."""
    status, message = run[0]["NUM-4", "SIGSTOP"]
    assert status == "failed" and "over 2 processes: process 1 was stopped by SIGSTOP, at SIGSTOP-" in message, message


def test_what_raises_in_one_process_alone_is_named(run):
    """Before the others have waited for it in vain, or trained with what was meant for another case."""
    status, message = run[0]["NUM-4", "raise"]
    assert status == "failed" and "OSError: the disk is full" in message, message


def test_a_mesh_of_fewer_devices_is_not_exercised(run):
    """It says how many there are."""
    status, message = run[0]["NUM-4", "small"]
    assert status == "not-exercised" and "its mesh has 4 devices, the 2 processes have 8" in message, message


def test_checkpoints_are_of_all_processes(run):
    """One strategy restores what the other has saved; of what one process alone wrote, the others' shards are lost."""
    assert [run[0][clause, "saves"][0] for clause in ("CKP-1", "CKP-2")] == ["proved", "proved"]
    status, message = run[0]["CKP-1", "saves_its_own"]
    assert status == "failed" and "differs in bits between the saved state and the restored" in message, message


def test_what_takes_checkpoints_apart_is_left_to_one_process(run):
    """It says so."""
    status, message = run[0]["CKP-5", "saves"]
    assert status == "not-exercised" and "observed in one process: run without --distributed" in message, message


def test_one_process_reports(run):
    """The other's failures in its words; the launcher's last line is the exit of process 0."""
    printed = run[1]
    assert printed.count("= conformance =") == 1 and "\nprocess 1: " in printed, printed


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["suites/test_losses_equal_truth.py", "-n", "2"], "--distributed: its processes are the workers"),
        (
            ["suites/test_losses_equal_truth.py", "--target", "tpu:v5e:2x4"],
            "--distributed --target tpu:v5e:2x4: expected",
        ),
        (["suites/test_losses_equal_truth.py", "--devices", "3"], "--devices 3 do not divide among 2 processes"),
    ],
)
def test_what_cannot_work_is_refused(words, told):
    """Before anybody waits."""
    done = over_processes(*words)
    assert done.returncode == 1 and told in done.stdout + done.stderr, done.stdout + done.stderr


def test_without_a_coordinator():
    """It says what sets one."""
    done = subprocess.run([*PYTEST, "suites", "--distributed"], capture_output=True, text=True, timeout=100)
    assert done.returncode == 4 and "--distributed: no coordinator: JAX knows no cluster here" in done.stderr, done


def test_processes_that_chose_other_tests_are_told_apart():
    """Both end, and the first test that only one of them has is named."""
    pytest_ = " ".join([*PYTEST, "suites/test_losses_equal_truth.py", "-k"])
    script = f"if test $JAX_PROCESS_ID = 1; then exec {pytest_} fsdp; else exec {pytest_} single; fi"
    done = subprocess.run([*LAUNCH, "sh", "-c", script], capture_output=True, text=True, timeout=100)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "process 1 chose other tests than process 0" in done.stdout + done.stderr, done.stdout + done.stderr
