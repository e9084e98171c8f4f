"""Operations and stacked layers with a planted fault are caught by the clause that stands beside each; sound ones not.

One run of the suites, as a user starts it, judges them all.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from meshproof.comparison import compare
from meshproof.operations.growing.measuring import JAXPR, TRACING
from tests.saboteurs.operations import CAUGHT_BY

ROOT = Path(__file__).parents[2]
TABLE = "tests.saboteurs.operations"


def judge(folder, *options):
    """The report of a run of the suites on the planted table, and its exit code."""
    report = folder / "report.json"
    arguments = ["suites", "-k", "operations", "-n", "2", "-q", "--tb=no", "-p", "no:randomly", *options]
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            *arguments,
            "--operations",
            TABLE,
            "--case-timeout",
            "150",
            "--conformance-report",
            str(report),
        ],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert run.returncode == 1, run.stdout + run.stderr
    return json.loads(report.read_text())


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Of all that is planted."""
    return judge(tmp_path_factory.mktemp("planted"))


@pytest.fixture(scope="module")
def failures(report):
    """What is planted, and the message of each clause that failed on it."""
    found = {planted: {} for planted in CAUGHT_BY}
    for clause in report["clauses"]:
        for test in clause["tests"]:
            if test["status"] == "failed":
                found[test["case"]][clause["id"]] = test["message"]
    return found


@pytest.mark.parametrize("planted", CAUGHT_BY)
def test_each_fault_is_caught_by_its_clause(failures, planted):
    """A planted fault fails its clause, which says what is wrong; what is healthy fails none.

    What was not seen fails every clause that asks for it.
    """
    assert failures[planted].keys() >= CAUGHT_BY[planted].keys()
    assert CAUGHT_BY[planted] or not failures[planted]
    for clause, said in CAUGHT_BY[planted].items():
        message = failures[planted][clause]
        assert re.search(said, message), f"{said}\nis not in\n{message}"
        assert f"{clause} is violated by {planted}: " in message
        assert f"[{planted}]' --case-timeout 150 --operations {TABLE}" in message.splitlines()[-1]


def became(report, was, now):
    """What a comparison says where one program became another of the same report, by the place of each line."""
    programs = {entry["id"]: entry for entry in report["programs"]}
    old, new = (programs[f"program-{name}@operations"] | {"id": "program"} for name in (was, now))
    compared = compare(report | {"programs": [old]}, report | {"programs": [new]})
    return {each.place: each for each in compared.differences if each.kind == "growth"}


@pytest.mark.parametrize(("planted", "place"), [("adds_all_inputs", JAXPR), ("traces_by_squares", TRACING)])
def test_a_program_that_grew_is_a_line_of_compare(report, planted, place):
    """By squares: more of it, or a longer time to trace it."""
    assert became(report, "healthy", planted)[place].change == "regressed"


def test_a_program_with_another_constant_has_no_line(report):
    """It is as large, and its times differ by noise alone."""
    assert became(report, "closes_over_noise", "reads_a_set") == {}
