"""What only a real compiler shows is caught through it, on a machine that has none of its devices.

Each fault is judged by the suites on every target whose compiler is installed here.
"""

import json
import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import patch

import pytest

from meshproof.cases import Case, load_cases
from meshproof.comparison import compare
from meshproof.observing.compile_only import observe_compile_only
from meshproof.observing.compilers import Compiler
from meshproof.observing.programs import BETWEEN_SLICES
from meshproof.targets import read_target
from meshproof.targets.packages import missing
from tests.accelerated import CAUGHT_BY, strategies
from tests.accelerated.modules import Modules
from tests.faults.test_saboteurs import COMPILED, missed_without
from tests.selected import parameters

pytestmark = pytest.mark.newest_stack

TARGETS = GPU, TPU = ("gpu:h200:8", "tpu:v5e:2x4")

strategies()

ON_GPUS = {"healthy_scanned", "calls_back", "waits_for_each_gather", "too_large", "gathered_in_float32"}
"""What each run judges on a GPU, too: its compiler takes longer. There it writes another program, or has the memory."""

PLANTED = [
    pytest.param(name, target, marks=[pytest.mark.thorough] if target == GPU and name not in ON_GPUS else [])
    for name in CAUGHT_BY
    for target in TARGETS
]


def run_suites(path, implementation, *options, expected, **variables):
    """The record of a run of the suites on every target that has its compiler here."""
    targets = [name for name in TARGETS if not missing(read_target(name))]
    if not targets:
        pytest.skip(f"no compiler: {missing(read_target(TARGETS[0]))}")
    chosen = [word for name in targets for word in ("--target", name)]
    command = [sys.executable, "-m", "pytest", "suites", "--impl", implementation, *chosen, "-q", "--tb=no", *options]
    told = {"capture_output": True, "text": True, "env": os.environ | variables}
    run = subprocess.run([*command, "--conformance-report", str(path)], **told)
    assert run.returncode == expected, run.stdout + run.stderr
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def report(request, tmp_path_factory):
    """What was found of all faults on a TPU, and on a GPU of those that are asked for there."""
    asked = {each["name"] for each in parameters(request) if each.get("target") == GPU}
    chosen = ["-k", f"v5e or {' or '.join(f'{name}-' for name in sorted(ON_GPUS | asked))}"]
    path = tmp_path_factory.mktemp("accelerated") / "report.json"
    return run_suites(path, "tests.accelerated", *chosen, expected=1)


@pytest.fixture(scope="module")
def tests(report):
    """Every test that was judged: its case, its suite file, its clause, and its record."""
    return [
        (test["case"], Path(test["id"].partition("::")[0]).name, clause["id"], test)
        for clause in report["clauses"]
        for test in clause["tests"]
        if test["case"]
    ]


@pytest.fixture(scope="module")
def failed(tests):
    """Those that failed, with their messages."""
    return [(case, file, clause, test["message"]) for case, file, clause, test in tests if test["status"] == "failed"]


@pytest.mark.parametrize(("name", "target"), PLANTED)
def test_each_fault_is_caught_by_its_clauses(report, failed, name, target):
    """A saboteur fails each clause named beside it on every target, and a healthy strategy fails none."""
    if problem := missing(read_target(target)):
        pytest.skip(f"no compiler: {problem}")
    [case] = [case["id"] for case in report["cases"] if (case["strategy"], case["target"]) == (name, target)]
    found = {clause: message for judged, _, clause, message in failed if judged == case}
    if CAUGHT_BY[name]:
        assert CAUGHT_BY[name] <= found.keys(), found
    else:
        assert found == {}


@pytest.mark.parametrize("file", sorted(COMPILED))
def test_no_suite_file_can_be_deleted(failed, file):
    """Of each suite file that judges compiled programs alone there is a fault that no other file catches."""
    assert not missed_without(failed, file), missed_without(failed, file)


def test_a_callback_is_one_fault_and_the_rest_is_judged(failed):
    """A client that only compiles has no backend to hand it to: on a GPU nothing of such a step was judged."""
    assert {clause for case, _, clause, _ in failed if case.startswith("calls_back")} == {"CMP-2"}


def test_an_excess_is_named_in_bytes_and_in_time(failed):
    """Which collective, as what it was written, what it should send, what it sends, and how long that takes."""
    told = [message for case, _, clause, message in failed if clause == "COM-13" and case.startswith("summed_whole")]
    assert told
    for message in told:
        assert "reduce-scatter over data, written as all-reduce" in message
        assert "expected 14,680,064 bytes on the wire, sent 29,360,128; 14,680,064 too many take" in message


@pytest.mark.skipif(bool(missing(read_target(GPU))), reason="no compiler for GPUs")
def test_what_is_cast_after_it_was_sent_is_noted(tests):
    """On a GPU: where no type was promised, nothing else says it. A TPU's compiler gathers in a fusion that casts."""
    notes = [(case, each["message"]) for case, _, clause, each in tests if clause == "COM-13" and case.endswith(GPU)]
    told = {case.partition("-")[0]: message for case, message in notes}
    assert told["healthy_scanned"] == ""
    assert (
        "all-gather of 6 arrays in f32, which all that reads them casts to bf16, first " in told["gathered_in_float32"]
    )
    assert "33,554,432 bytes less would be sent" in told["gathered_in_float32"]


def test_what_does_not_fit_is_told_by_how_much_and_by_what(failed):
    """The memory of the chip and its source, each term, and the largest arrays."""
    told = [message for case, _, clause, message in failed if clause == "MEM-8" and case.startswith("too_large")]
    assert told
    assert all("in_LxDxF" in message or "Ran out of memory" in message for message in told), told


def test_numbers_are_not_exercised(tests):
    """Of no number is it said that it was judged, and the reason is told."""
    numbers = [test for case, _, clause, test in tests if clause.startswith("NUM") and case.startswith("healthy")]
    assert numbers and {test["status"] for test in numbers} == {"not-exercised"}
    assert all("only compiles" in test["message"] for test in numbers)


@pytest.mark.thorough
def test_memory_that_grows_with_an_upgrade_is_regressed(tmp_path):
    """marin#5394 rebuilt small: both runs are green, and their comparison names the bytes, on every target."""
    chosen = ("tests.accelerated.grown", "-k", "memory or in_place")
    before = run_suites(tmp_path / "before.json", *chosen, expected=0)
    comparison = compare(before, run_suites(tmp_path / "after.json", *chosen, expected=0, GROWN="1"))
    worse = [each for each in comparison.differences if each.change == "regressed"]
    found = {(each.case.partition("@data=8:")[2], each.place) for each in worse}
    assert {(target, "temporary") for target in before["environment"]["targets"]} <= found
    assert comparison.exit_code() == 1 and not comparison.cannot_tell


@pytest.mark.parametrize("told", [True, False], ids=["told of the target's devices", "told of the host's"])
def test_a_trainer_that_asks_for_its_devices_is_told_the_targets(told, tmp_path):
    """Traced as on a CPU it would drop its constraints, and another program would be judged than people run."""
    target = read_target("gpu:h200:8")
    if problem := missing(target):
        pytest.skip(f"no compiler: {problem}")
    [case] = [
        case
        for case in load_cases("tests.accelerated", (target.name,))
        if case.id.startswith("healthy_unless_on_a_cpu")
    ]
    compiler = Compiler(target, tmp_path)
    host = patch("meshproof.observing.compile_only.default_devices", lambda devices: nullcontext())
    with nullcontext() if told else host:
        seen = observe_compile_only(case, compiler)
    gathered = sum(entry.bytes for entry in seen.programs.forward.collectives if entry.operation == "all-gather")
    [expected] = [line.bytes for line in case.contract.forward if line.operation == "all-gather"]
    assert (gathered == expected) is told


@pytest.mark.thorough
def test_a_module_that_asks_on_import_is_told_the_targets(tmp_path):
    """As packages do that choose their kernels then. And JAX keeps no program that it could not read again."""
    chosen, kept = ("tests.accelerated.imported", "-k", "bytes_equal"), tmp_path / "kept"
    report = run_suites(tmp_path / "report.json", *chosen, expected=0, MESHPROOF_CACHE=str(kept))
    judged = {(clause["id"], test["status"]) for clause in report["clauses"] for test in clause["tests"]}
    assert ("COM-11", "proved") in judged
    programs = [path.name for path in kept.rglob("*-cache")]
    assert programs and not any(name.startswith("jit_") for name in programs), programs


def test_what_a_state_hides_is_seen_without_an_init(tmp_path):
    """Of an ``init`` that cannot be lowered nothing is seen; the state is there all the same, before and after."""
    chosen = ("tests.accelerated.hidden", "-k", "state_bytes or parameters_are_sharded")
    report = run_suites(tmp_path / "report.json", *chosen, expected=1)
    tests = [(clause["id"], test) for clause in report["clauses"] for test in clause["tests"]]
    told = [(id_, test["case"].partition("-")[0], test["message"]) for id_, test in tests if test["status"] == "failed"]
    assert {(id_, name) for id_, name, _ in told} >= {("MEM-1", "hides_a_copy"), ("SHD-1", "splits_what_is_whole")}
    assert ("SHD-1", "hides_a_copy") not in {(id_, name) for id_, name, _ in told}
    assert all("before training" in message for _, _, message in told), told
    assert all("['copy']" in message for id_, name, message in told if (id_, name) == ("MEM-1", "hides_a_copy")), told


def test_modules_that_a_jitted_init_makes_are_compiled(tmp_path):
    """Flax wraps JAX's own stage, whose outputs are the leaves of another tree than the one that ``init`` returns."""
    target = read_target("gpu:h200:8")
    if problem := missing(target):
        pytest.skip(f"no compiler: {problem}")
    seen = observe_compile_only(Case("modules", Modules(), {"data": 8}, target.name), Compiler(target, tmp_path))
    assert [(leaf.path, leaf.as_declared) for leaf in seen.start.layouts.parameters] == [("layer/kernel", True)]
    assert all(leaf.as_declared for leaf in seen.training.layouts.optimizer_state)
    assert seen.programs.step.memory.aliased >= 3 * 4 * 256 * 128 / 8


def test_what_leaves_a_slice_is_not_judged(tmp_path, monkeypatch):
    """It is no collective of the program, which is one slice's: nobody is told that all of it was counted."""
    monkeypatch.setenv("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")  # another process may have it
    target = read_target("tpu:v5e:2x2:2")
    if problem := missing(target):
        pytest.skip(f"no compiler: {problem}")
    [case] = [case for case in load_cases("reference_impl", (target.name,)) if case.id.startswith("hsdp-jax-mlp@")]
    step = observe_compile_only(case, Compiler(target, tmp_path)).programs.step
    assert {step.collectives, step.host_transfers, step.flights} == {BETWEEN_SLICES}
    assert step.memory.aliased > 0
