"""Faults at points that are drawn from a seed: a run goes on bitwise or says which file, a group which process."""

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.run_faults.schedule import KINDS, SAVE, draw, place
from tests.waiting import within


def faults(*words, limit=600):
    """What the command printed on both streams, and its exit code."""
    command = [sys.executable, "-m", "tests.run_faults", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=limit)


def test_a_run_survives_its_faults():
    """No wrong state, no hang, no save lost, and whoever is lost is named."""
    run = faults("--seed", 17, "--count", 60)
    assert run.returncode == 0, run.stdout + run.stderr
    assert len(re.findall(r"^fault \d+ of seed 17: .* → (bitwise|named)", run.stdout, re.M)) == 60, run.stdout
    [seconds] = re.findall(r"a lost process was named within ([\d.]+) s", run.stdout)
    assert float(seconds) < 10
    assert f" in a {SAVE}" in run.stdout
    assert re.match(r"a full disk is (ENOSPC of a tmpfs|RLIMIT_FSIZE \(.+\))\n", run.stdout), run.stdout


def late(fault):
    """Whether a fault of two processes is one of process 1, when its share is being written."""
    return fault.point != SAVE or (fault.which < 0.5 and fault.where > 0.6)


@pytest.mark.parametrize(
    ("name", "kind", "how"),
    [
        ("forgets_momentum", ("kill", "restore"), "wrong state"),
        ("saves_in_place", ("torn write", "save"), "not resumed"),
        ("swallows_errors", ("full disk", "save"), "lost save"),
        ("names_another", ("kill", "launch"), "unnamed"),
        ("commits_alone", ("kill", SAVE), "not resumed"),
        ("sees_no_death", ("kill", SAVE), "unnamed"),
    ],
)
def test_what_does_not_survive_is_seen(name, kind, how):
    """With the line that plays it again."""
    drawn = (draw(17, n) for n in range(800))
    number = next(each.number for each in drawn if (each.kind, each.point) == kind and late(each))
    run = faults("--plant", name, "--fault", number)
    assert run.returncode == 1, run.stdout + run.stderr
    assert re.search(rf"VIOLATION: fault \d+ of seed 17: .* → {how}", run.stderr), run.stdout + run.stderr
    assert f"again: python -m tests.run_faults --seed 17 --fault {number}" in run.stderr


def test_a_fault_is_a_function_of_its_seed_and_number():
    """And every kind is drawn."""
    assert [draw(3, number) for number in range(9)] == [draw(3, number) for number in range(9)]
    assert {(fault.kind, fault.point) for fault in (draw(17, number) for number in range(800))} == set(KINDS)
    assert [place(fraction, 4) for fraction in (0.0, 0.25, 0.999, 1.0)] == [0, 1, 3, 3]


def test_one_that_sleeps_in_a_save_is_told_from_one_that_waits():
    """Both are at the same mark, and the main threads of both wait: it is told at which line another thread is."""
    drawn = (draw(17, n) for n in range(800))
    number = next(each.number for each in drawn if (each.kind, each.point) == ("asleep", SAVE) and each.which < 0.5)
    run = faults("--fault", number)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "process 1 of 2" in run.stdout and "expected every process to end within" in run.stdout


FILLS = """
import sys
from pathlib import Path
from tests.run_faults import disks
if sys.argv[2:]:
    disks.mount = lambda folder: disks.call("no_such_call")
with disks.Disk(Path(sys.argv[1]) / "disk") as disk:
    print(disk.kind, disk.why)
    disk.fill(1000)()
    try:
        (disk.folder / "file").write_bytes(bytes(100_000))
    except OSError as error:
        print(error.strerror)
    disk.empty()
    print(disk.why or (disk.folder / "file").write_bytes(bytes(100_000)))
"""


@pytest.mark.parametrize("words", [(), ("none",)])
def test_a_full_disk_is_full(tmp_path, words):
    """A tmpfs until it is emptied; where none can be mounted it says why, and no file becomes longer."""
    command = [sys.executable, "-c", FILLS, tmp_path, *words]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    kind, full, then = run.stdout.splitlines()
    if kind.startswith("ENOSPC of a tmpfs") and not words:
        assert (full, then) == ("No space left on device", "100000")
    else:
        assert re.match("RLIMIT_FSIZE .+", kind) and full == "File too large"
    assert mounted(tmp_path) == []


def test_nothing_stays_mounted_when_it_is_killed(tmp_path, monkeypatch):
    """Nor does a process of it stay that is stopped, in whose namespace the disk would be."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with subprocess.Popen(
        [sys.executable, "-m", "tests.run_faults", "--fault", "9"], stdout=subprocess.PIPE
    ) as command:
        said, until = command.stdout.readline(), time.monotonic() + 60
        while not list(tmp_path.glob("*/half.json")) and time.monotonic() < until:
            time.sleep(0.02)  # its first run has ended, its second is under way
        seen, small = [], said.startswith(b"a full disk is ENOSPC of a tmpfs")
        while small and not seen and time.monotonic() < until:
            seen = [each for each in mounted(tmp_path) if each != command.pid]
        for each in seen:
            os.kill(each, signal.SIGSTOP)
        command.send_signal(signal.SIGKILL)
    assert bool(seen) == small, said
    assert within(10, lambda: not mounted(tmp_path))


def mounted(folder):
    """The ids of processes that see anything mounted in a folder."""
    found = []
    for table in Path("/proc").glob("[0-9]*/mounts"):
        with suppress(OSError):  # it has ended
            found += [int(table.parent.name)] if f" {folder}" in table.read_text(encoding="utf-8") else []
    return found
