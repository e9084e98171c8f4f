"""Every check can fail: each planted fault is caught by the clauses that stand beside it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from meshproof.environment import describe, flipped_defaults
from tests.saboteurs import CAUGHT_BY

FILES = sorted(path.name for path in (Path(__file__).parents[1] / "suites").glob("test_*.py"))
FLIPPED = {"JAX_DEFAULT_MATMUL_PRECISION": "bfloat16"}
"""A fault of the stack, planted in the environment of the run: a default that no CPU heeds, and `observe` overrides."""
STACK = "the stack"


@pytest.fixture(scope="module")
def failed(tmp_path_factory):
    """The failed tests (strategy, file, clause and message) of one run of the suites on all saboteurs."""
    report = tmp_path_factory.mktemp("saboteurs") / "report.json"
    arguments = ["suites", "--impl", "tests.saboteurs", "-n", "2", "-q", "--tb=no", "--conformance-report", str(report)]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments], capture_output=True, text=True, env=os.environ | FLIPPED
    )
    assert run.returncode == 1, run.stdout + run.stderr
    seen = json.loads(report.read_text())
    strategies = {case["id"]: case["strategy"] for case in seen["cases"]} | {None: STACK}
    return [
        (strategies[test["case"]], Path(test["id"].partition("::")[0]).name, clause["id"], test["message"])
        for clause in seen["clauses"]
        for test in clause["tests"]
        if test["status"] == "failed"
    ]


@pytest.fixture(scope="module")
def failures(failed):
    """Strategy to its failed clauses and their messages."""
    found = {name: {} for name in (*CAUGHT_BY, STACK)}
    for name, _, clause, message in failed:
        found[name][clause] = message
    return found


@pytest.mark.parametrize("name", CAUGHT_BY)
def test_each_fault_is_caught_by_its_clauses(failures, name):
    """A saboteur fails each clause named beside it, and a healthy strategy fails none."""
    if CAUGHT_BY[name]:
        assert CAUGHT_BY[name] <= failures[name].keys()
    else:
        assert failures[name] == {}


def test_a_flipped_default_is_the_stacks_fault_alone(failures):
    """A default that is flipped in the environment fails its own clause, and no strategy another one."""
    assert failures[STACK].keys() == {"SHD-9"}
    assert "matmul_precision is 'bfloat16'" in failures[STACK]["SHD-9"]


def test_every_clause_has_a_saboteur():
    """No clause of the suites is without a planted fault that it catches."""
    from meshproof.spec import read_clauses

    planted = set().union(*CAUGHT_BY.values())
    assert {clause.id for clause in read_clauses()} - planted == {"SHD-9"}, "SHD-9 is planted in the environment"


def missed_without(failed, file):
    """What a suite file would have to catch alone, and does not; empty where a planted fault is its alone."""
    catchers = {}
    for name, catcher, _, _ in failed:
        catchers.setdefault(name, set()).add(catcher)
    others = {name: sorted(files - {file}) for name, files in catchers.items() if file in files}
    if not all(others.values()):
        return ""
    nearest = sorted(others, key=lambda name: len(others[name]))[:3]
    seen = "; ".join(f"{name} is also caught by {', '.join(others[name])}" for name in nearest) or "it catches none"
    return f"without {file} every planted fault would still be caught: plant one that it alone catches ({seen})"


@pytest.mark.parametrize("file", FILES)
def test_no_suite_file_can_be_deleted(failed, file):
    """Of each suite file there is a planted fault that no other file catches: without the file it would survive."""
    assert not missed_without(failed, file), missed_without(failed, file)


def test_a_file_that_can_be_deleted_is_named():
    """A file whose every fault another file catches is named, with the nearest fault; so is one that catches none."""
    failed = [("both", "test_a.py", "A-1", ""), ("both", "test_b.py", "B-1", ""), ("own", "test_b.py", "B-1", "")]
    assert missed_without(failed, "test_b.py") == ""
    assert "without test_a.py" in missed_without(failed, "test_a.py")
    assert "both is also caught by test_b.py" in missed_without(failed, "test_a.py")
    assert "it catches none" in missed_without(failed, "test_c.py")


def test_every_message_is_whole(failures):
    """Whatever was planted: the case, what is allowed, the margin, the budget or the first leaf, and how to run it."""
    for name, by_clause in failures.items():
        for clause, message in by_clause.items():
            if name == "crash" or "Error" in message:
                continue
            parts = [f"{clause} is violated", f"strategy {name}, ", "margin", "alone: pytest 'suites/"]
            parts += {"COM": ["budget: "], "MEM": ["allowed"]}.get(clause[:3], [])
            assert [part for part in parts if part not in message] == [], message


def test_messages_say_what_to_do(failures):
    """A failure names clause, strategy, mesh, leaf, observed, allowed, margin and how to run it alone."""
    message = failures["sum_for_mean"]["NUM-2"]
    for part in ("NUM-2", "sum_for_mean-jax-mlp@data=8", "dense_0/kernel", "error", "allowed", "margin"):
        assert part in message
    assert (
        "pytest 'suites/test_first_gradients_equal_truth.py::test_first_gradients_equal_truth[sum_for_mean" in message
    )


def test_traffic_messages_name_the_budget(failures):
    """A communication failure names operation, axes, bytes seen and allowed, margin, and the line of the budget."""
    message = failures["reduced_twice"]["COM-2"]
    assert "all-reduce over data: 1,867,860 bytes seen" in message
    assert "933,932 allowed, 933,928 too many, margin 2.000" in message
    assert "; budget: all-reduce of gradients over data: 933,928 bytes" in message


def test_a_crash_is_a_failed_case_with_the_signals_name(failures):
    """A case that kills its process fails by the signal's name, and the run goes on."""
    assert "SIGSEGV" in failures["crash"]["NUM-2"]


def test_a_flipped_default_is_one_finding():
    """A default that is not the known one of the JAX version is named, with both values."""
    environment = describe()
    assert flipped_defaults(environment) == []
    environment["defaults"]["x64"] = True
    [finding] = flipped_defaults(environment)
    assert "x64 is True" in finding and "known: False" in finding
