"""A failure is for somebody who has never seen this project and must act tonight: each part of it is demanded here."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FAULTS = {
    "drifting_replicas": ["replicas_are_bitwise"],
    "inert_annotation": ["parameters_lie", "shards_are", "state_bytes", "state_is_donated", "step_compiles"],
    "masters_in_bf16": ["masters", "stays_within"],
    "microbatches_averaged_alike": ["first_gradients", "microbatches_equal", "masked_batches_equal"],
    "reduced_in_the_loop": ["gradients_are_reduced_once", "accumulation"],
    "schedule_leaves_out": ["bubble", "hop_one"],
    "whole_batch_everywhere": ["uneven_batches", "nothing_else_moves"],
}


def pytest_suites(*arguments):
    """``pytest`` in a process of its own, as a reader would start it."""
    command = [sys.executable, "-m", "pytest", *arguments, "-p", "no:randomly"]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT)


@pytest.fixture(scope="module")
def messages(tmp_path_factory):
    """Clause and strategy to the messages of its failures, from one run on some planted faults."""
    report = tmp_path_factory.mktemp("messages") / "report.json"
    chosen = " or ".join(f"({fault} and ({' or '.join(tests)}))" for fault, tests in FAULTS.items())
    pytest_suites("suites", "-q", "-n2", "--impl", "tests.saboteurs", "-k", chosen, "--conformance-report", report)
    found = {}
    for clause in json.loads(report.read_text())["clauses"]:
        for test in clause["tests"]:
            if test["status"] == "failed":
                key = clause["id"], test["case"].partition("-")[0]
                found[key] = found.get(key, "") + test["message"] + "\n"
    return found


PARTS = {
    ("NUM-2", "microbatches_averaged_alike"): [
        "strategy microbatches_averaged_alike, framework jax, model mlp, mesh data=8, target cpu",
        "gradients of step 1: 8 of 8 leaves failed, first dense_0/kernel in model order",
        r"dense_0/kernel is not truth: .* \[error [\d.]+, allowed [\d.e-]+, margin [\d.e+]+, relative error [\d.]+\]",
        r"and 5 more, the worst of all is dense_\d/\w+ with margin ",
    ],
    ("NUM-6", "drifting_replicas"): [
        r"copies on several devices: \d+ of \d+ leaves failed, first \S*dense_0\S*kernel\S* in model order",
        r"differs in bits between device \d and device \d: [\d,]+ of 100,352 elements",
        "allowed 0, margin inf",
    ],
    ("COM-2", "reduced_in_the_loop"): [
        "step: all-reduce over data: 4,669,660 bytes seen, 933,932 allowed, 3,735,728 too many, margin 5.000",
        "written as all-reduce; phase ",
        "budget: all-reduce of gradients over data: 933,928 bytes; all-reduce of metrics over data: 4 bytes",
    ],
    ("COM-8", "schedule_leaves_out"): [
        r"step: collective-permute over stage runs \[22\] times, expected 21, once a tick",
        "budget: collective-permute of activations over stage: 360,448 bytes",
    ],
    ("COM-9", "reduced_in_the_loop"): [
        "gradients reduced in a step: 4,669,656 bytes seen, 933,928 allowed, 3,735,728 too many, margin 5.000",
        "1 times what healthy_data_parallel-jax-mlp@data=8 reduces; budget: all-reduce of gradients over data: 933,928",
    ],
    ("COM-10", "whole_batch_everywhere"): [
        r"step: all-gather over data: [\d,]+ bytes seen, 0 allowed, [\d,]+ too many, margin inf",
        "budget: no line lists all-gather over data",
    ],
    ("SHD-1", "inert_annotation"): [
        r"- dense_0/kernel \(784, 128\) lies as P\S*\(\) at birth, declared is P\S*\(None, 'data'\): ",
        "401,408 bytes on the fullest device seen, 50,176 allowed, 351,232 too many, margin 8.000",
    ],
    ("SHD-3", "inert_annotation"): [
        r"dense_0/kernel \(784, 128\) lies as P.*: 8 of 8 devices hold another part; position 0 holds part ",
    ],
    ("MEM-1", "inert_annotation"): [
        r"state at birth: [\d,]+ bytes on the fullest device seen, 237,136 allowed, [\d,]+ too many, margin \d",
        "theory: each leaf's bytes, divided by the axes of its declared spec",
        "furthest is dense_0/kernel with 401,408 bytes for 50,176",
    ],
    ("MEM-2", "inert_annotation"): [
        r"aliased from the step's input to its output: [\d,]+ bytes seen, [\d,]+ allowed, [\d,]+ too few, margin 0",
        "theory: every byte of the state",
    ],
    ("CMP-1", "inert_annotation"): [r"step 2 ran .* \(\d+ events\), allowed is none", "margin: none, this holds or it"],
    ("ACC-1", "microbatches_averaged_alike"): [
        "gradients of step 1: 8 of 8 leaves failed, first dense_0/kernel in model order",
        r"is not healthy_\S+@data=8: .*\[error [\d.e-]+, allowed [\d.e-]+, margin ",
    ],
    ("MIX-1", "masters_in_bf16"): [
        "parameters after step 1: 1 of 4 leaves failed, first dense_1/kernel in model order",
        "- parameters/dense_0/kernel has no digit that bfloat16 could not hold",
    ],
    ("MSK-1", "microbatches_averaged_alike"): [
        "8 of 8 leaves failed, first dense_0/kernel in model order",
        "is not truth",
    ],
    ("PIP-1", "schedule_leaves_out"): [
        "21 of 4 × 21 slots idle, a share of 1/4 seen, 3/11 allowed, margin 0.917; theory: S=4, V=1, M=8"
    ],
    ("ERR-1", "whole_batch_everywhere"): [
        "was not refused, no error was raised; expected an error that names 63 and 8"
    ],
}


@pytest.mark.parametrize(("clause", "strategy"), PARTS, ids=[" of ".join(key) for key in PARTS])
def test_each_part_is_there(messages, clause, strategy):
    """Clause and case, the place, what was seen, what is allowed, the margin, where it comes from, and how to rerun."""
    message = messages[clause, strategy]
    for part in (*PARTS[clause, strategy], "margin", rf"{clause} is violated by {strategy}-\S+@\S+: "):
        assert re.search(part, message), f"{part}\nis not in\n{message}"
    assert all(len(one.splitlines()) < 60 for one in message.split(f"{clause} is violated"))


def test_the_line_runs_it_alone(messages):
    """The last line, given to a shell, fails in the same words."""
    message = messages["MIX-1", "masters_in_bf16"].strip().rpartition("MIX-1 is violated")[2]
    *words, alone = message.splitlines()
    command = shlex.split(alone.removeprefix("alone: "))
    assert command[0] == "pytest" and command[-2:] == ["--impl", "tests.saboteurs"]
    run = pytest_suites(*command[1:])
    assert run.returncode == 1 and "1 failed" in run.stdout
    assert all(line in run.stdout for line in words)
