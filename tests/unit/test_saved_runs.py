"""Files of times: what is no whole run, and no whole baseline, is refused in one line."""

import json

import pytest
from typer.testing import CliRunner

from meshproof.cli import app
from meshproof.timing.baselines import promote, read_baseline
from meshproof.timing.runs import RunError, read_run
from tests.timings import entry, run, save

A, B = (f"test_toy.py::test_time[{name}]" for name in "ab")


@pytest.fixture
def folder(tmp_path):
    """A folder with a baseline of two benchmarks."""
    promote([save(tmp_path / "first.json", entry(A), entry(B))], tmp_path / "baselines")
    return tmp_path / "baselines"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (json.dumps(run(entry(A)))[:-9], "is no JSON, or cut off"),
        ("[]", "is no run"),
        ('{"benchmarks": [{"fullname": "x", "stats": {}}]}', "x has no identity"),
        ('{"benchmarks": [7]}', "no run: "),
        (json.dumps(run(entry(A))).replace('"data"', '"nothing"'), "saved without its rounds"),
        (json.dumps(run(entry(A, witnesses={}))), "no witnesses; time it with benchmark.pedantic"),
        (json.dumps(run(entry(A))).replace('"dtype"', '"type"'), "does not say its dtype"),
        (
            json.dumps(run(entry(A, witnesses={"one core": []}))),
            r"at benchmarks\[0\].extra_info.witnesses.one core: \[\]",
        ),
        (json.dumps(run(entry(A, witnesses={"one core": [float("nan")]}))), "NaN is no number"),
        (json.dumps(run(entry(A, measured={"device_seconds": "1"}))), r"extra_info.measured.device_seconds: \"1\" is"),
        (json.dumps(run(entry(A)) | {"meshproof": {"problems": [7]}}), r"at meshproof.problems: \[7\] is not of type"),
    ],
)
def test_unreadable_run_is_one_error(tmp_path, text, message):
    """What is no whole run is refused with the reason."""
    path = tmp_path / "run.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(RunError, match=message):
        read_run(path)


@pytest.mark.parametrize("runs", [None, [], [{"benchmarks": []}], 7])
def test_a_baseline_without_a_benchmark_is_refused(folder, runs):
    """It is one line, of the command too."""
    [path] = folder.iterdir()
    path.write_text(json.dumps({"schema": 1, "runs": runs}), encoding="utf-8")
    shown = CliRunner().invoke(app, ["baseline", "show", "--folder", str(folder)])
    assert shown.exit_code == 2 and "holds no run, or one without a benchmark; promote one" in shown.stderr


def test_a_baseline_of_other_benchmarks_is_refused(folder):
    """Its runs must tell of the same things what they differ by."""
    [path] = folder.iterdir()
    held = json.loads(path.read_text())
    path.write_text(json.dumps(held | {"runs": [*held["runs"], run(entry(A))]}), encoding="utf-8")
    with pytest.raises(RunError, match="holds runs of other benchmarks than its first"):
        read_baseline(path)


def test_too_few_rounds_are_no_baseline(tmp_path):
    """What no later run could be compared with."""
    few = entry(A)
    few["stats"]["data"] = few["stats"]["data"][:7]
    with pytest.raises(RunError, match=r"test_time\[a\]: 7 rounds; expected 8 or more"):
        promote([save(tmp_path / "few.json", few)], tmp_path / "baselines")


def test_other_schema_is_refused(tmp_path, folder):
    """A baseline of another format is refused by its number."""
    [path] = folder.iterdir()
    path.write_text(json.dumps(json.loads(path.read_text()) | {"schema": 2}), encoding="utf-8")
    with pytest.raises(RunError, match="has schema 2, this meshproof reads 1"):
        read_baseline(path)
