"""Every check can fail: each planted fault is caught by the clauses that stand beside it.

And their messages are for somebody who has never seen this project and must act tonight: each part is demanded.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests import accelerated
from tests.faults.messages import PARTS
from tests.saboteurs import CAUGHT_BY
from tests.saboteurs import operations as tables
from tests.selected import parameters

ROOT = Path(__file__).parents[2]
FILES = sorted(path.name for path in (ROOT / "suites").glob("test_*.py"))
FLIPPED = {"JAX_DEFAULT_MATMUL_PRECISION": "bfloat16"}
"""A fault of the stack, planted in the environment of the run: a default that no CPU heeds, and `observe` overrides."""
STACK = "the stack"
COMPILED = {
    *("test_bytes_on_the_wire.py", "test_step_fits_its_chip.py"),
    *("test_communication_is_hidden.py", "test_state_is_updated_in_place.py"),
}
"""Suite files that judge only what is compiled for a chip that is not here: `test_accelerated` has their faults."""

ELSEWHERE = {
    *("test_flags_change_the_program.py", "test_data_is_read_once_and_resumed.py"),
    *("test_stacked_layers_are_sharded_as_declared.py", "test_operations_give_the_one_device_result.py"),
    *("test_bytes_of_operations_are_recorded.py", "test_published_figures.py", "test_lost_processes_are_named.py"),
    *("test_transforms_give_the_one_device_result.py", "test_programs_grow_in_proportion.py"),
    *("test_cache_keys_are_equal.py", "test_runs_continue.py"),
    *COMPILED,
}
"""Suite files whose faults are no strategies of `tests.saboteurs`: `test_flags`, `test_loaders`, `test_runs`,
`test_planted_operations`, `test_published_figures` and `test_lost_processes` have those of the others."""

TOLD = {"crash", *(strategy for _, strategy in PARTS)}
"""Those of which a test below reads the message."""


WHAT_A_STACK_WRITES = ("SHD", "COM", "MEM", "CMP", "PIP", "API", "CKP")
"""Groups of clauses that judge layouts, programs and files. Others compare numbers, the same way on every stack."""


def few(among, clauses, chosen=()):
    """These planted faults, and as few others as are caught by all other clauses."""
    chosen = set(chosen)
    while missing := set(clauses).difference(*(CAUGHT_BY[planted] for planted in chosen)):
        chosen.add(max(among, key=lambda planted: len(CAUGHT_BY[planted] & missing)))
    return chosen


CAUGHT = set().union(*CAUGHT_BY.values())
IN_EVERY_RUN = few(CAUGHT_BY, CAUGHT, {planted for planted in CAUGHT_BY if planted.partition("-")[0] in TOLD})
ON_EVERY_STACK = few(sorted(IN_EVERY_RUN), {clause for clause in CAUGHT if clause.startswith(WHAT_A_STACK_WRITES)})


def planted_fault(planted):
    """A parameter."""
    rare = [] if planted in ON_EVERY_STACK else [pytest.mark.newest_stack]
    return pytest.param(planted, marks=rare if planted in IN_EVERY_RUN else [pytest.mark.thorough])


PLANTED = list(map(planted_fault, CAUGHT_BY))


@pytest.fixture(scope="module")
def failed(request, tmp_path_factory):
    """The failed tests (case, file, clause and message) of one run of the suites on the selected saboteurs."""
    report = tmp_path_factory.mktemp("saboteurs") / "report.json"
    planted = [each["planted"] for each in parameters(request) if "planted" in each]
    told = {each["strategy"] for each in parameters(request) if "strategy" in each}
    names = {"defaults", *told, *(case.partition("-")[0] for case in planted)}
    chosen = ["-k", " or ".join(sorted(names))] if len(planted) < len(CAUGHT_BY) else []
    arguments = ["suites", "--impl", "tests.saboteurs", "-q", "--tb=no", "--conformance-report", str(report)]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments, *chosen], capture_output=True, text=True, env=os.environ | FLIPPED
    )
    assert run.returncode == 1, run.stdout + run.stderr
    seen = json.loads(report.read_text())
    return [
        (test["case"] or STACK, Path(test["id"].partition("::")[0]).name, clause["id"], test["message"])
        for clause in seen["clauses"]
        for test in clause["tests"]
        if test["status"] == "failed"
    ]


@pytest.fixture(scope="module")
def failures(failed):
    """Case to its failed clauses and their messages."""
    found = {case: {} for case in (*CAUGHT_BY, STACK)}
    for case, _, clause, message in failed:
        found[case][clause] = found[case].get(clause, "") + message + "\n"
    return found


def told(failures, name, clause):
    """What the only case of a planted fault was told by a clause."""
    [case] = [case for case in CAUGHT_BY if case.startswith(f"{name}-")]
    return failures[case][clause]


@pytest.mark.parametrize("planted", PLANTED)
def test_each_fault_is_caught_by_its_clauses(failures, planted):
    """A saboteur fails each clause named beside it, and a healthy strategy fails none."""
    if CAUGHT_BY[planted]:
        assert CAUGHT_BY[planted] <= failures[planted].keys()
    else:
        assert failures[planted] == {}


def test_a_flipped_default_is_the_stacks_fault_alone(failures):
    """A default that is flipped in the environment fails its own clause, and no strategy another one."""
    assert failures[STACK].keys() == {"SHD-9"}
    assert re.search("default of matmul_precision on .* saw 'bfloat16'", failures[STACK]["SHD-9"])


def test_every_clause_has_a_saboteur():
    """No clause of the suites is without a planted fault that it catches."""
    from meshproof.judging.spec import read_clauses

    accelerated.strategies()
    planted = set().union(*CAUGHT_BY.values(), *accelerated.CAUGHT_BY.values())
    elsewhere = {"FLG-1", "SHD-9", "CKP-6", "DAT-1", "ROO-1", "MPR-2", "MPR-3"}.union(*tables.CAUGHT_BY.values())
    assert {clause.id for clause in read_clauses()} - planted == elsewhere, (
        "these are planted in the environment, in loops, data iterators, formulas, groups and tables of operations"
    )


RAISED = r"^  - (?:\w+\.)*\w*(?:Error|Exception): "
"""A message that says no more than what the strategy raised."""

STUMBLES = {"crash", "reads_when_awaited", "whole_batch_everywhere"}
"""Faults that are an error."""


def test_a_fault_is_seen_and_not_stumbled_over(failed):
    """No strategy merely raises where its clause was to look: of a fault that never ran, nothing was judged."""
    judged = {(case, clause) for case, _, clause, message in failed if not re.search(RAISED, message, re.MULTILINE)}
    ran = {(case, clause) for case, _, clause, _ in failed if case.partition("-")[0] not in STUMBLES}
    assert {(case, clause) for case, clause in ran - judged if clause in CAUGHT_BY.get(case, ())} == set()


def missed_without(failed, file):
    """What a suite file would have to catch alone, and does not; empty where a planted fault is its alone."""
    catchers = {}
    for case, catcher, _, _ in failed:
        catchers.setdefault(case, set()).add(catcher)
    others = {case: sorted(files - {file}) for case, files in catchers.items() if file in files}
    if not all(others.values()):
        return ""
    nearest = sorted(others, key=lambda case: len(others[case]))[:3]
    seen = "; ".join(f"{case} is also caught by {', '.join(others[case])}" for case in nearest) or "it catches none"
    return f"without {file} every planted fault would still be caught: plant one that it alone catches ({seen})"


@pytest.mark.thorough
@pytest.mark.parametrize("file", sorted(set(FILES) - ELSEWHERE))
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
    """Whatever was planted: the case, what was expected or allowed, the budget, and how to run it. No margin is 0."""
    for case, by_clause in failures.items():
        name = case.partition("-")[0]
        for clause, message in by_clause.items():
            if name in ("crash", STACK) or "Error" in message or "cannot be read" in message:
                continue
            parts = [f"{clause} is violated", f"strategy {name}, ", "run it alone: pytest 'suites/"]
            parts += ["budget: "] if clause.startswith("COM") else []
            assert [part for part in parts if part not in message] == [], message
            assert re.search("expected|allowed|is not|differs|missing|more than|another part", message), message
            assert not re.search(r"margin 0|margin none", message), message


@pytest.mark.newest_stack
@pytest.mark.parametrize(("clause", "strategy"), PARTS, ids=[" of ".join(key) for key in PARTS])
def test_each_part_is_there(failures, clause, strategy):
    """Clause and case, the place, what was expected, what was seen, where that comes from, and how to rerun."""
    message = told(failures, strategy, clause)
    for part in (*PARTS[clause, strategy], rf"{clause} is violated by {strategy}-\S+@\S+: "):
        assert re.search(part, message, re.MULTILINE), f"{part}\nis not in\n{message}"
    assert all(len(one.splitlines()) < 60 for one in message.split(f"{clause} is violated"))


@pytest.mark.newest_stack
@pytest.mark.parametrize("strategy", ["masters_in_bf16"])
def test_the_line_runs_it_alone(failures, strategy):
    """The last line, given to a shell, fails in the same words."""
    message = told(failures, strategy, "MIX-1").strip().rpartition("MIX-1 is violated")[2]
    *words, alone = message.splitlines()
    command = shlex.split(alone.removeprefix("run it alone: "))
    assert command[0] == "pytest" and command[-2:] == ["--impl", "tests.saboteurs"]
    run = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, cwd=ROOT)
    assert run.returncode == 1 and "1 failed" in run.stdout
    assert all(line in run.stdout for line in words)


@pytest.mark.parametrize("strategy", ["crash"])
def test_a_crash_is_a_failed_case_with_the_signals_name(failures, strategy):
    """A case that kills its process fails by the signal's name, and the run goes on."""
    assert "SIGSEGV" in told(failures, strategy, "RUN-1")
