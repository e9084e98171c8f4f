"""The pytest door: options, bad input, and the record of a run."""

import json
import re
import subprocess
import sys
from types import SimpleNamespace

import jsonschema_rs
import pytest

from meshproof.cases import load_cases
from meshproof.chosen import covering
from meshproof.report.schemas import read_schema
from meshproof.run.conformance import Conformance


def run_suites(*arguments):
    """``pytest suites/`` as a user runs it."""
    command = [sys.executable, "-m", "pytest", "suites", "-q", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


def assert_refused(run, *words):
    """One error, with these words, and no test run."""
    output = run.stdout + run.stderr
    assert run.returncode == pytest.ExitCode.USAGE_ERROR, output
    assert output.count("ERROR: ") == 1 and "Traceback" not in output, output
    for word in words:
        assert word in output, output


@pytest.mark.parametrize(
    ("implementation", "words"),
    [
        ("no.such.module", ["no.such.module", "cannot be imported", "No module named"]),
        ("tests.implementations.empty", ["has no member strategies()"]),
        (
            "tests.implementations.lacking",
            ["strategy nameless lacks framework, model, init, train_step, batches, mesh", "unstartable lacks init"],
        ),
        ("tests.implementations.twins", ["share the id minimal-jax-line@data=1", "variant"]),
        (
            "tests.implementations.odd",
            [
                "strategy minimal is a class; return Trainer() instead",
                "strategy minimal: model is 7; expected a str",
                "strategy minimal: mesh_axes is [('data', 1)]; expected a dict from axis name to size",
                "strategy minimal: contract is {}; expected a meshproof.contract.Contract, or none at all",
                "the contract names the axes model, but the axes of the mesh are data",
                "the contract names the axes data:(1)2, but the axes of the mesh are data",
                "the contract names the axes data:(1)3, but the axes of the mesh are data",
                "its contract raised ValueError: Contract.compute_dtype is 'float8_e4m3fn'; expected one of",
            ],
        ),
        ("tests.implementations.none", ["strategies() returned None; return a list of strategies"]),
    ],
)
def test_an_unusable_implementation_is_one_error(implementation, words):
    """An implementation that cannot be used is refused once, with everything that it lacks."""
    assert_refused(run_suites("--impl", implementation), *words)


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_selection_that_is_none_is_refused(workers):
    """Under xdist, too: the id of a case is no expression, because of its mesh."""
    assert_refused(
        run_suites("-k", "fsdp-jax-mlp@data=8", "-n", workers), "-k 'fsdp-jax-mlp@data=8'", "'fsdp and not bf16'"
    )


@pytest.mark.parametrize("word", ["FOO", "NUM-", "NUM-x", "num"])
def test_what_no_suite_can_judge_is_not_required(word):
    """A group that is none, a clause without a number."""
    assert_refused(run_suites("--require", f"COM,{word}"), f"--require {word}: expected groups of clauses, NUM, SHD,")


@pytest.mark.parametrize("given", ["", "NUM,,COM", "NUM,"])
def test_a_demand_without_a_word_is_refused(given):
    """A variable that is empty in somebody's script would demand nothing, and say so nowhere."""
    assert_refused(run_suites("--require", given), f"--require {given!r}: expected groups of clauses, NUM, SHD,")


def test_a_required_clause_that_judges_no_case_is_no_pass():
    """Of a trainer that is on one device nothing is bound to move between devices."""
    run = run_suites("--impl", "tests.implementations.minimal", "-k", "finite", "--require", "COM-5")
    assert run.returncode == pytest.ExitCode.TESTS_FAILED, run.stdout
    assert "REQUIRED AND NOT EXERCISED: COM-5" in run.stdout and " failed" not in run.stdout.splitlines()[-1]


@pytest.mark.parametrize("word", ["NUM-99", "COM-02"])
def test_a_clause_that_there_is_not_is_not_required(word):
    """No run could fail it."""
    group = word.partition("-")[0]
    words = f"--require {word}: no suite judges it, expected {group} or one of {group}-1, {group}-2, "
    assert_refused(run_suites("--require", word), words)


def test_what_is_required_and_not_judged_is_red():
    """A run that was green, with what it did not judge, fails with the option that its summary names."""
    chosen = ("--impl", "tests.implementations.adapters", "-k", "bare and first_gradients")
    green = run_suites(*chosen)
    assert green.returncode == 0, green.stdout
    assert "NOT JUDGED, worst first (--require NUM makes it a failure):" in green.stdout
    assert "  NUM-2 of bare: the implementation brings no truth: bring single_device(dtype)" in green.stdout
    red = run_suites(*chosen, "--require", "NUM")
    assert red.returncode == 1 and "NUM-2 is not judged of bare-jax-regression@data=8" in red.stdout, red.stdout
    assert "--impl tests.implementations.adapters --require NUM\n" in red.stdout


def test_an_unwritable_report_fails_before_the_first_test(tmp_path):
    """A report path in no folder, or that is one, is refused before anything runs."""
    assert_refused(run_suites("--conformance-report", tmp_path / "nowhere" / "report.json"), "no file can be written")
    assert_refused(run_suites("--conformance-report", tmp_path), "this is a folder")


def test_a_cache_that_is_no_folder_is_refused(tmp_path):
    """A file, in which JAX would keep nothing and say nothing."""
    kept = tmp_path / "kept"
    kept.write_text("")
    assert_refused(run_suites("--compile-cache", kept), f"--compile-cache {kept}: this is no folder")


def test_too_few_devices_are_not_a_pass(tmp_path):
    """With three devices the cases that need eight are not exercised, loudly and by reason."""
    path = tmp_path / "report.json"
    chosen = ("--impl", "docs.adapters.optax_loop", "-k", "data_parallel")
    run = run_suites(*chosen, "--devices", 3, "--conformance-report", path)
    reason = "its mesh needs 8 devices, there are 3 (cpu)"
    assert "NOT EXERCISED" in run.stdout and reason in run.stdout
    assert "0 proved" in run.stdout and run.returncode == pytest.ExitCode.NO_TESTS_COLLECTED
    report = json.loads(path.read_text())
    assert {clause["status"] for clause in report["clauses"]} == {"not-exercised"}
    assert {case["problem"] for case in report["cases"]} == {reason}


def test_a_target_without_its_hardware_is_not_exercised():
    """``--target native`` on a host without an accelerator proves nothing, and says so."""
    run = run_suites("--impl", "tests.implementations.minimal", "--target", "native")
    assert "NOT EXERCISED" in run.stdout and "no accelerator" in run.stdout
    assert run.returncode == pytest.ExitCode.NO_TESTS_COLLECTED


def test_a_quick_run_judges_a_covering():
    """Of these cases alone there is a test, and the header says so."""
    said = run_suites("--quick", "--collect-only", "--verbose", "-k", "cases_answer").stdout
    judged = re.findall(r"cases_answer\[(.*)\]>", said)
    assert sorted(judged) == sorted(case.id for case in covering(load_cases("reference_impl"), 8))
    assert re.search("^meshproof: .* --quick$", said, re.MULTILINE)


def test_a_quick_run_says_how_many_it_left_out():
    """At its end, which -q leaves."""
    cases = load_cases("reference_impl")
    run = run_suites("--quick", "-k", "cases_answer and single_device")
    left = len(cases) - len(covering(cases, 8))
    assert run.returncode == 0 and f"--quick left out {left} of {len(cases)} cases" in run.stdout, run.stdout


def test_a_quick_run_compares_with_what_it_leaves_out():
    """A twin may be among these: to the suites it is there."""
    told = {"impl": "reference_impl"}
    asked, worker = SimpleNamespace(quick=True, devices=8), {"meshproof_directory": ""}
    run = Conformance(SimpleNamespace(getoption=told.get, option=asked, workerinput=worker))
    assert len(run.cases) == len(load_cases("reference_impl"))
    assert run.judged == covering(run.cases, 8)


@pytest.mark.every_stack
def test_a_minimal_trainer_is_observed_and_never_passed(tmp_path):
    """What a trainer does not bring is reported not supported, and what it does is recorded."""
    path = tmp_path / "report.json"
    run_suites("--impl", "tests.implementations.minimal", "--conformance-report", path)
    report = json.loads(path.read_text())
    statuses = {clause["id"]: clause["status"] for clause in report["clauses"]}
    assert set(statuses.values()) == {"proved", "not-supported", "not-exercised"}
    assert {clause for clause, status in statuses.items() if status == "proved"} == {
        "API-1", "CMP-1", "MIX-2", "NUM-5", "NUM-10", "RUN-1", "SHD-5", "SHD-9"
    }  # fmt: skip
    assert statuses["NUM-1"] == statuses["SHD-1"] == statuses["COM-10"] == "not-supported"
    [case] = report["cases"]
    assert len(case["losses"]) == 3
    assert case["shardings"] == {"['w']": {"spec": "SingleDeviceSharding", "shape": [], "axes": [], "shard_shape": []}}
    assert case["truth"] is None


@pytest.mark.every_stack
def test_an_odd_truth_fails_its_own_case(tmp_path):
    """A truth that cannot judge fails the clauses of its case in words, and costs no other case its record."""
    path = tmp_path / "report.json"
    run = run_suites(
        "--impl", "tests.implementations.truths", "-k", "losses_equal and not forward", "--conformance-report", path
    )
    report = json.loads(path.read_text())
    jsonschema_rs.validate(read_schema("report"), report)
    tests = {test["case"]: test for clause in report["clauses"] for test in clause["tests"]}
    assert tests.pop("sound-jax-line@data=1")["status"] == "proved", run.stdout
    for case, words in {
        "raises": "truth, a Raises: ValueError: it knows no such batch (",
        "flat": "initial_parameters has the key 'net/~/w', expected one without '/'",
        "narrow": "w of parameters after step 1: its rounding has shape (1,), its value shape ()",
        "forgets": "w of parameters after step 1: its rounding has none, its value shape ()",
        "short": "train returned a value of 2 steps, expected 3, one a batch",
        "none": "truth, a Nothing: TypeError: train returned a NoneType, None, expected a ReferenceTrajectory",
    }.items():
        test = tests.pop(f"{case}-jax-line@data=1")
        assert test["status"] == "failed" and words in test["message"], test["message"]
    assert not tests
    losses = {case["strategy"]: (case["truth"], len(case["expected_losses"])) for case in report["cases"]}
    assert losses.pop("sound") == ("brought", 3) and set(losses.values()) == {(None, 0)}


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """The records of two cases: run in one process, and in two with its compilations kept and found again."""
    folder = tmp_path_factory.mktemp("reports")
    unmodified = "not (adam or averaged or explicit or accumulated or bf16 or masked or remat)"
    chosen = f"(fsdp-jax-mlp or data_parallel-jax-cnn) and {unmodified}"
    select = ["-k", chosen, "--compile-cache", folder / "cache"]
    alone, spread = folder / "alone.json", folder / "spread.json"
    runs = [
        run_suites(*select, "--conformance-report", alone),
        run_suites(*select, "-n", 2, "--conformance-report", spread),
    ]
    assert [run.returncode for run in runs] == [0, 0], runs
    return [json.loads(path.read_text()) for path in (alone, spread)]


def test_reports_are_valid(reports):
    """A report validates against the schema in the repository, under xdist too."""
    for report in reports:
        jsonschema_rs.validate(read_schema("report"), report)


@pytest.mark.thorough
def test_xdist_gives_the_same_record(reports):
    """Two processes and a warm compile cache give the verdicts and facts of one process and a cold cache."""
    alone, spread = (
        {case["id"]: {k: v for k, v in case.items() if k != "compile_seconds"} for case in report["cases"]}
        for report in reports
    )
    assert alone == spread
    verdicts = [
        {test["id"]: (test["status"], test["margin"]) for clause in report["clauses"] for test in clause["tests"]}
        for report in reports
    ]
    assert verdicts[0] == verdicts[1] and verdicts[0]


def test_a_worker_writes_no_report(tmp_path):
    """xdist's workers are asked for a summary too, and know of their own tests alone."""
    path = tmp_path / "report.json"
    options = {"conformance_report": str(path)}
    worker = Conformance(SimpleNamespace(getoption=options.get, workerinput={"meshproof_directory": str(tmp_path)}))
    worker.records["a test"] = SimpleNamespace(case=None)
    worker.pytest_terminal_summary(None, 0)
    assert not path.exists() and worker.record is None


def test_a_run_that_stops_early_says_so(reports, tmp_path):
    """A report tells whether its run came to its end: after an interruption, what is absent was not judged."""
    path = tmp_path / "report.json"
    select = ["--impl", "tests.implementations.adapters", "-k", "sum_for_mean"]
    run_suites(*select, "--maxfail", 1, "--conformance-report", path)
    assert not json.loads(path.read_text())["run"]["finished"]
    assert [report["run"]["finished"] for report in reports] == [True, True]


def test_deselected_clauses_are_not_exercised(reports):
    """A clause whose tests were all deselected is in the record, and not as a pass."""
    statuses = {clause["id"]: clause["status"] for clause in reports[1]["clauses"]}
    assert statuses["NUM-1"] == "not-exercised"
    assert statuses["COM-2"] == "proved"
