"""`pytest benchmarks/ --benchmark-compare` as a user runs it, on benchmarks of which the clock is made up."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from meshproof.timing.baselines import promote
from meshproof.timing.runs import RunError, read_run
from tests.timings import FACTS, IDENTITY, STACK

ROOT = Path(__file__).parents[2]
TOY = """
import itertools, json, pathlib, random
import pytest

TOYS = json.loads(pathlib.Path(__file__).with_name("toys.json").read_text())
NOW = [0.0]

@pytest.mark.parametrize("name", TOYS)
@pytest.mark.benchmark(timer=lambda: NOW[0])
def test_time(name, benchmark):
    toy, noise = TOYS[name], random.Random(name)
    if "skip" in toy:
        pytest.skip(toy["skip"])
    def run():
        NOW[0] += toy["seconds"] * noise.lognormvariate(0, 0.005)
    benchmark.pedantic(run, rounds=10)
    benchmark.extra_info |= {key: toy[key] for key in ("identity", "facts", "stack")}
    if toy.get("interrupt"):
        raise KeyboardInterrupt
    assert toy.get("right", True)
"""
WITNESS = """
from meshproof.timing import witness
witness.Witnesses.measure = lambda self: {"one core": 0.001}
"""


class Benchmarks:
    """A folder of benchmarks, the runs it saves, and its baselines."""

    def __init__(self, path):
        self.path = path
        (path / "toys").mkdir()
        (path / "toys" / "test_toy.py").write_text(TOY, encoding="utf-8")
        (path / "conftest.py").write_text(WITNESS, encoding="utf-8")
        (path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")

    def run(self, *options, **toys):
        """Run these toys with the options of a user."""
        usual = {"seconds": 0.1, "identity": IDENTITY, "facts": FACTS, "stack": STACK}
        described = {name: usual | toy for name, toy in toys.items()}
        (self.path / "toys" / "toys.json").write_text(json.dumps(described), encoding="utf-8")
        plugins = ["-p", "meshproof.timing.plugin", "-p", "no:randomly", "-p", "no:cacheprovider"]
        return subprocess.run(
            [sys.executable, "-m", "pytest", *plugins, *map(str, options or ["toys"])],
            cwd=self.path,
            env=os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "200"},
            capture_output=True,
            text=True,
        )

    def compare(self, *options, **toys):
        """Run these toys against the baseline."""
        return self.run("toys", "--benchmark-compare", *options, **toys)

    @property
    def saved(self):
        """What was saved, the newest last."""
        return sorted(self.path.glob(".benchmarks/*/*.json"))

    @property
    def baselines(self):
        """Where a user has them."""
        return self.path / "benchmarks" / "baselines"


@pytest.fixture
def benchmarks(tmp_path):
    """Benchmarks without a baseline."""
    return Benchmarks(tmp_path)


@pytest.fixture
def promoted(benchmarks):
    """Benchmarks of which the toys a and b were saved and promoted."""
    saved = benchmarks.run("toys", "--benchmark-autosave", a={}, b={})
    assert saved.returncode == 0, saved.stdout
    promote(benchmarks.saved, benchmarks.baselines)
    return benchmarks


def assert_failed(run, *words, test="a"):
    """One test failed, or one error, with these words and without a traceback."""
    assert run.returncode == pytest.ExitCode.TESTS_FAILED, run.stdout + run.stderr
    assert f"FAILED toys/test_toy.py::test_time[{test}]" in run.stdout, run.stdout
    assert "1 failed" in run.stdout
    assert "Traceback" not in run.stdout + run.stderr and "INTERNALERROR" not in run.stdout + run.stderr
    for word in words:
        assert word in run.stdout, run.stdout


def assert_refused(run, *words):
    """Nothing ran, and one error says why."""
    assert run.returncode == pytest.ExitCode.USAGE_ERROR, run.stdout + run.stderr
    assert "passed" not in run.stdout and "Traceback" not in run.stdout + run.stderr
    for word in words:
        assert word in run.stderr, run.stderr


def test_the_same_and_the_faster_pass(promoted):
    """The same code is the same; a speed-up is called faster; neither fails."""
    run = promoted.compare(a={}, b={"seconds": 0.1 / 1.3})
    assert run.returncode == 0, run.stdout
    assert "1 same, 1 faster" in run.stdout
    assert "cpu-cpu-8-some-cpu.json" in run.stdout


def test_slower_fails_its_test_again_and_again(promoted):
    """A slowdown by 1.3 fails its test and no other; that the run was saved does not make it the next baseline."""
    for _ in range(2):
        run = promoted.compare("--benchmark-autosave", a={"seconds": 0.13}, b={})
        assert_failed(run, "1 passed", "slower: was 0.09986 s, is 0.1298 s: 1.30× [1.2", "1 slower, 1 same")
    with pytest.raises(RunError, match="slower"):
        promote(promoted.saved[-1:], promoted.baselines)


def test_no_baseline_is_an_error(benchmarks):
    """A comparison without a baseline times nothing, fails, and says how to make one."""
    run = benchmarks.compare(a={})
    assert_refused(run, "there is no baseline in benchmarks/baselines", "meshproof baseline promote")
    assert_refused(benchmarks.compare("--baselines", "elsewhere", a={}), "there is no baseline in elsewhere")


def test_saved_run_is_no_baseline(benchmarks):
    """What was only saved is compared with where it is named, whichever Python saved it, and not otherwise."""
    benchmarks.run("toys", "--benchmark-save", "old", a={})
    assert_refused(benchmarks.compare(a={}), "there is no baseline")
    [saved] = benchmarks.saved
    other = saved.parent.parent / "Linux-CPython-3.9-64bit"
    saved.parent.rename(other)
    for name in ("0001", other / saved.name):
        run = benchmarks.run("toys", f"--benchmark-compare={name}", a={"seconds": 0.13})
        assert_failed(run, "slower", "Linux-CPython-3.9-64bit")
    assert_refused(benchmarks.run("toys", "--benchmark-compare=0002", a={}), "0002: no such file, and no saved run")


def test_foreign_baseline_stops_the_run(promoted):
    """On another machine the first benchmark fails with both names, and nothing is green."""
    gpu = {"identity": IDENTITY | {"platform": "gpu", "device_kind": "NVIDIA H200", "host": None}}
    run = promoted.compare("--benchmark-autosave", a=gpu, b=gpu)
    words = ("is of another machine", "device_kind was 'cpu', is 'NVIDIA H200'", "promote RUN --accept machine")
    assert_failed(run, *words)
    assert "passed" not in run.stdout
    assert "did not finish" in read_run(promoted.saved[-1]).problems["the run"]


def test_other_model_is_refused_alone(promoted):
    """A benchmark of another dtype fails; the others are compared."""
    run = promoted.compare(a={"identity": IDENTITY | {"dtype": "bfloat16"}, "seconds": 0.05}, b={})
    assert_failed(run, "dtype was 'float32', is 'bfloat16' in its identity", "1 refused, 1 same")


def test_fact_that_changed_by_one_byte_fails(promoted):
    """The time is the same, one byte more is moved: the test fails and says so."""
    run = promoted.compare(a={"facts": FACTS | {"bytes_by_axis": {"data": 1001}}}, b={})
    assert_failed(run, "bytes_by_axis / data was 1,000, is 1,001", "1 changed, 1 same")


def test_missing_renamed_and_skipped_benchmarks_fail(promoted):
    """What the baseline has and the run has not fails by its name; what is new is listed."""
    run = promoted.compare(a={}, renamed={})
    assert_failed(run, "no such test", "1 same, 1 new, 1 missing", test="b")
    assert_failed(promoted.compare(a={}, b={"skip": "too few devices"}), "skipped: Skipped: too few devices", test="b")
    run = promoted.compare(a={"skip": "no accelerator"}, b={"skip": "no accelerator"})
    assert run.returncode == pytest.ExitCode.TESTS_FAILED
    assert "no benchmark was timed" in run.stdout


def test_deselected_is_not_missing(promoted):
    """Who asks for one benchmark is told of that one."""
    for narrowed in (["-k", "[a]"], ["toys/test_toy.py::test_time[a]"]):
        run = promoted.run(*narrowed, "--benchmark-compare", a={}, b={})
        assert run.returncode == 0, run.stdout
        assert "1 same" in run.stdout and "1 missing" not in run.stdout


def test_failed_benchmark_is_not_saved(promoted):
    """A test that fails after it was timed fails as ever, its time is not saved, and its run is never promoted."""
    run = promoted.compare("--benchmark-autosave", a={"right": False, "seconds": 0.05}, b={})
    assert run.returncode == pytest.ExitCode.TESTS_FAILED
    saved = read_run(promoted.saved[-1])
    assert list(saved.benchmarks) == ["toys/test_toy.py::test_time[b]"]
    assert saved.problems == {"toys/test_toy.py::test_time[a]": "failed in call"}


@pytest.mark.parametrize("test", ["def test_time(broken, benchmark): pass", "def test_itself(): assert False"])
def test_what_fails_before_it_is_timed_is_known(benchmarks, test):
    """A fixture that raises before there is a benchmark, or a test without one: the run is never promoted."""
    toys = benchmarks.path / "toys" / "test_broken.py"
    toys.write_text(f"import pytest\n@pytest.fixture\ndef broken(): raise ValueError\n{test}\n", encoding="utf-8")
    run = benchmarks.run("toys", "--benchmark-autosave", a={})
    assert run.returncode == pytest.ExitCode.TESTS_FAILED and "1 passed" in run.stdout
    with pytest.raises(RunError, match=r"this cannot be accepted: .*test_broken.py::test_\w+: failed in "):
        promote(benchmarks.saved, benchmarks.baselines)


def test_interrupted_run_is_never_promoted(benchmarks):
    """What Ctrl-C left is saved as what it is."""
    run = benchmarks.run("toys", "--benchmark-autosave", a={}, b={"interrupt": True})
    assert run.returncode == pytest.ExitCode.INTERRUPTED
    with pytest.raises(RunError, match="the run: did not finish"):
        promote(benchmarks.saved, benchmarks.baselines)


def test_threshold_is_the_users(promoted):
    """`--benchmark-compare-fail median:50%` lets 1.3× pass, and any other rule is refused."""
    slow = {"a": {"seconds": 0.13}, "b": {}}
    assert promoted.compare("--benchmark-compare-fail", "median:50%", **slow).returncode == 0
    assert_failed(promoted.compare("--benchmark-compare-fail", "median:10%", **slow), "slower")
    for rule in ("min:5%", "median:0.001"):
        assert_refused(promoted.compare("--benchmark-compare-fail", rule, **slow), "such as median:10%")
    for option in (["--benchmark-compare-fail", "median:5%"], ["--baselines", "elsewhere"]):
        assert_refused(promoted.run("toys", *option, **slow), f"{option[0]} ", "add --benchmark-compare")


def test_witnesses_are_measured_beside_every_round(benchmarks):
    """With the real witnesses, one time of each is saved for each of the ten rounds."""
    (benchmarks.path / "conftest.py").unlink()
    benchmarks.run("toys", "--benchmark-autosave", a={})
    [saved] = read_run(benchmarks.saved[0]).benchmarks.values()
    assert {name: len(times) for name, times in saved.sample.witnesses.items()} == dict.fromkeys(
        ("one core", "all cores", "memory"), 10
    )
    assert all(time > 0 for times in saved.sample.witnesses.values() for time in times)


def test_nothing_timed_is_refused(promoted):
    """Where nothing would be timed or the path was swallowed, the run ends before it begins."""
    assert_refused(promoted.compare("--benchmark-disable", a={}), "nothing would be timed")
    assert_refused(promoted.compare("-n", "2", a={}), "pytest-xdist: nothing would be timed")
    assert_refused(promoted.run("--benchmark-compare", "toys", a={}), "toys is a folder", "put the path before it")
    assert_refused(promoted.run("toys", "--benchmark-compare=", a={}), "what follows = is empty; leave out both")
