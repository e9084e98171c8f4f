"""What docs/adapters.md shows is what is run here, and what a user would plant in it by mistake is found."""

import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.implementations.adapters import CAUGHT_BY, strategies

pytestmark = pytest.mark.newest_stack

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "adapters.md").read_text(encoding="utf-8")


@cache
def run_suites(implementation, *options):
    """The record of ``pytest suites/ --impl`` on one implementation."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "report.json")
        command = [sys.executable, "-m", "pytest", "suites", "--impl", implementation, "-q", *options]
        subprocess.run([*command, "--conformance-report", str(path)], capture_output=True, cwd=ROOT)
        return json.loads(path.read_text())


def verdicts(report, strategy):
    """Status to the clauses in which a test of this strategy has it, with its messages."""
    found = {"proved": {}, "failed": {}, "not-supported": {}, "not-exercised": {}}
    for clause in report["clauses"]:
        for test in clause["tests"]:
            if (test["case"] or "").startswith(f"{strategy}-"):
                messages = found[test["status"]]
                messages[clause["id"]] = messages.get(clause["id"], "") + test["message"]
    return found


@pytest.mark.parametrize("name", ["optax_loop", "nnx_trainer"])
def test_the_page_shows_what_is_run(name):
    """Each example stands in the page, whole."""
    source = (ROOT / "docs" / "adapters" / f"{name}.py").read_text(encoding="utf-8")
    assert source in re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_optax_loop_conforms():
    """The first example fails nothing, and is judged in numbers, layout, communication, memory and compilation."""
    report = run_suites("docs.adapters.optax_loop")
    found = verdicts(report, "data_parallel")
    assert found["failed"] == {}
    assert found["proved"].keys() >= {
        "NUM-2", "NUM-3", "NUM-4", "NUM-5", "NUM-6", "NUM-10", "SHD-1", "SHD-2", "SHD-3", "SHD-4", "SHD-5",
        "API-1", "COM-1", "COM-2", "COM-10", "COM-11", "MEM-1", "MEM-2", "CMP-1", "CMP-2", "CMP-3", "ERR-2",
    }  # fmt: skip
    [case] = report["cases"]
    assert case["truth"] == "single_device" and case["errors"]


def test_the_nnx_trainer_conforms():
    """The second one promises layouts alone: they and its numbers are proved, what moves is not supported."""
    found = verdicts(run_suites("docs.adapters.nnx_trainer"), "fsdp")
    assert found["failed"] == {}
    assert found["proved"].keys() >= {
        "NUM-3", "NUM-4", "NUM-5", "NUM-6", "NUM-10", "SHD-1", "SHD-2", "SHD-3", "SHD-5", "SHD-6", "MEM-1", "MEM-2",
    }  # fmt: skip
    assert found["not-supported"].keys() >= {"NUM-2", "SHD-4", "COM-2", "COM-4", "COM-10", "ERR-2"}
    assert not [clause for clause in found["proved"] if clause.startswith("COM")]


@pytest.mark.parametrize("name", [strategy.name for strategy in strategies()])
def test_each_fault_is_found(name):
    """An adapter fails the clauses that catch its fault, and a healthy one none."""
    failed = verdicts(run_suites("tests.implementations.adapters"), name)["failed"]
    assert failed.keys() >= CAUGHT_BY[name] if name in CAUGHT_BY else failed == {}


def test_messages_name_the_place():
    """A sum for a mean is named as one; momentum is named by its leaf, with both layouts."""
    report = run_suites("tests.implementations.adapters")
    assert (
        "momentum/w_in differs from truth: it is 8 times truth" in verdicts(report, "sum_for_mean")["failed"]["NUM-3"]
    )
    message = verdicts(report, "momentum_whole")["failed"]["SHD-2"]
    assert "momentum/w_in (16, 32), after init: expected P" in message and ", is " in message


def test_the_place_of_one_fault_is_named():
    """Where one leaf of an adapter is not reduced, the messages name it first, and the bytes that do not move."""
    failed = verdicts(run_suites("tests.implementations.adapters"), "one_leaf_forgotten")["failed"]
    assert "after step 1: 1 of 2 leaves failed; the first in model order is momentum/w_out" in failed["NUM-3"]
    assert f"all-reduce over data: expected 3,076 bytes, saw {4 * 16 * 32 + 4:,} (" in failed["COM-2"]
    assert "budget: all-reduce of gradients over data: 3,072 bytes" in failed["COM-2"]


def test_what_is_left_out_is_not_supported():
    """Without a contract nothing that it would promise is proved; with parameters alone, nothing but what they need."""
    report = run_suites("tests.implementations.adapters")
    bare, partial = (verdicts(report, name) for name in ("bare", "partial"))
    free = {"API-1", "NUM-5", "NUM-6", "NUM-10", "SHD-5", "CMP-1", "CMP-2", "CMP-3", "MEM-2", "MIX-2", "RUN-1"}
    assert bare["proved"].keys() == free
    assert partial["proved"].keys() == free | {"NUM-2", "NUM-3", "NUM-4", "NUM-11", "NUM-12", "NUM-13", "SHD-1"}
    assert {"SHD-2", "SHD-3", "SHD-4", "MEM-1", "MEM-4", "COM-2", "COM-10", "COM-11"} <= partial["not-supported"].keys()


def test_a_trainer_without_a_contract_is_recorded():
    """Its losses, collectives, memory, layouts and compilation are in the record, to be compared with another's."""
    compiled_here = run_suites("tests.implementations.adapters", "--no-compile-cache", "-k", "bare and finite")
    [case] = compiled_here["cases"]
    assert len(case["losses"]) == 3
    assert sum(entry["bytes"] for entry in case["collectives"] if entry["operation"] == "all-reduce") == 3072 + 4
    assert case["memory"]["aliased"] == case["memory"]["state"] == 2 * 3072
    assert case["shardings"]["['parameters']['w_in']"]["shard_shape"] == [16, 32]
    assert case["flops"] and case["compile_seconds"]


def test_without_double_precision_its_own_run_is_the_truth():
    """A trainer that a cast keeps in float32 is judged by its run on one device, as far as two such runs differ."""
    found = verdicts(run_suites("tests.implementations.adapters"), "narrow")
    assert found["proved"].keys() >= {"NUM-2", "NUM-3", "NUM-4", "NUM-13"}
