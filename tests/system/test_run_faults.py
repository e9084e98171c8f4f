"""Faults at points that are drawn from a seed: a run goes on bitwise or says which file, a group which process."""

import re
import subprocess
import sys

import pytest

from tests.run_faults.schedule import KINDS, draw, place


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


@pytest.mark.parametrize(
    ("name", "kind", "how"),
    [
        ("forgets_momentum", ("kill", "restore"), "wrong state"),
        ("saves_in_place", ("torn write", "save"), "not resumed"),
        ("swallows_errors", ("full disk", "save"), "lost save"),
        ("names_another", ("kill", "launch"), "unnamed"),
    ],
)
def test_what_does_not_survive_is_seen(name, kind, how):
    """With the line that plays it again."""
    number = next(n for n in range(200) if (draw(17, n).kind, draw(17, n).point) == kind)
    run = faults("--plant", name, "--fault", number)
    assert run.returncode == 1, run.stdout + run.stderr
    assert re.search(rf"VIOLATION: fault \d+ of seed 17: .* → {how}", run.stderr), run.stdout + run.stderr
    assert f"again: python -m tests.run_faults --seed 17 --fault {number}" in run.stderr


def test_a_fault_is_a_function_of_its_seed_and_number():
    """And every kind is drawn."""
    assert [draw(3, number) for number in range(9)] == [draw(3, number) for number in range(9)]
    assert {(fault.kind, fault.point) for fault in (draw(17, number) for number in range(200))} == set(KINDS)
    assert [place(fraction, 4) for fraction in (0.0, 0.25, 0.999, 1.0)] == [0, 1, 3, 3]
