"""Two environments that take turns: the one that is slower is called so, and what cannot be timed is said."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from meshproof.cli import app
from meshproof.timing.ab import Paired, join, run_ab
from meshproof.timing.comparison import Comparison
from meshproof.timing.ratios import compare_pairs
from tests.stacks import make_stack

TOY = """
import os, signal, sys, threading
from hashlib import sha256
from pathlib import Path
import pytest

PLANT = Path(sys.prefix, "plant")
FAULT = PLANT.read_text()
KIND, _, FACTOR = FAULT.partition(" ")

DATA = memoryview(bytes(1 << 23))

def work(times):  # in C: how fast a loop of the interpreter runs differs from process to process by a tenth
    sha256(DATA[: 40 * times]).digest()

def test_work(benchmark):
    if KIND == "memory":
        assert os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] == FACTOR
    if KIND == "plain":
        benchmark.extra_info["identity"] = {"dtype": ""}
        return benchmark(work, 1)
    if KIND == "skip":
        pytest.skip("too few devices")
    times = 1 if KIND == "memory" else float(FACTOR or 1)
    benchmark.pedantic(work, args=(int(30_000 * times),), rounds=10)
    assert KIND != "wrong", "the loss is wrong"
    dtype = "1" if KIND == "work" else FACTOR
    benchmark.extra_info["identity"] = {} if KIND == "silent" else {"dtype": dtype}
    benchmark.extra_info["facts"] = {"bytes": 7 + (KIND == "fact"), "known": float("nan")}
    if KIND == "text":
        benchmark.extra_info["identity"] = "mlp"
    if KIND == "keys":
        benchmark.extra_info["facts"] = {("data", "model"): 7}

def test_other(benchmark):
    def crash():
        if KIND == "crash":
            os._exit(11)
        if KIND == "hang":
            threading.Event().wait()
        if KIND == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
            threading.Event().wait()  # what was stopped goes on for a moment before its stack is printed
        if KIND == "raise":
            raise ValueError("out of memory")
    benchmark.pedantic(crash, rounds=10)
"""


@pytest.fixture(scope="module")
def environments(tmp_path_factory):
    """Two environments that see what this one has, and in which a fault can be planted."""
    folders = [tmp_path_factory.mktemp("environments") / name for name in ("old", "new")]
    for folder in folders:
        make_stack(folder)
    return folders


@pytest.fixture
def ab(environments, tmp_path, monkeypatch):
    """`meshproof ab` on a toy, with faults planted in the old and the new environment."""
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "test_toy.py").write_text(TOY, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def run(old, new, *words):
        for folder, fault in zip(environments, (old, new), strict=True):
            (folder / "plant").write_text(fault, encoding="utf-8")
        sides = ["--from", str(environments[0]), "--to", str(environments[1])]
        return CliRunner().invoke(app, ["ab", *sides, "benchmarks/test_toy.py", *words])

    return run


MEMORY = "XLA_PYTHON_CLIENT_PREALLOCATE"
WORK = ("-k", "work", "--rounds", "120", "--json", "ab.json")


def judged():
    """The one benchmark in ab.json."""
    [found] = json.loads(Path("ab.json").read_text(encoding="utf-8"))["benchmarks"]
    return found


@pytest.mark.parametrize(
    ("old", "new", "verdict", "code"),
    [("work 1.0", "work 1.3", "slower", 1), ("work 1.3", "work 1.0", "faster", 0)],
)
def test_planted_change_is_told_with_its_direction(ab, old, new, verdict, code):
    """Work that is 1.3 times as much is slower on the side that does it, and faster seen from there.

    On a machine where other tests run it may not be told at once: the advice is to try again, never the other verdict.
    """
    for _ in range(3):
        done = ab(old, new, *WORK)
        found = judged()
        if found["verdict"] != "cannot tell":
            break
        assert done.exit_code == 0 and "or a quieter machine" in done.stdout, done.output
    assert (found["verdict"], done.exit_code) == (verdict, code), done.output
    assert verdict in done.stdout
    assert [[len(side) for side in session.values()] for session in found["seconds"]] == [[120, 120]] * 6


def test_same_code_is_never_told_apart(ab):
    """The same code in two processes is the same, or it cannot be told."""
    done = ab("work 1.0", "work 1.0", *WORK)
    assert done.exit_code == 0, done.output
    assert judged()["verdict"] in ("same", "cannot tell")


@pytest.mark.parametrize(
    ("fault", "verdict", "message", "code"),
    [
        ("wrong", "failed", "--to failed: ", 1),
        ("keys 1", "failed", "--to failed: its extra_info is no JSON: keys must be str", 1),
        ("skip", "not timed", "--to skipped: Skipped: too few devices", 0),
        ("other 2", "refused", "dtype was '1', is '2' in its identity", 1),
    ],
)
def test_what_is_wrong_on_one_side_is_said(ab, fault, verdict, message, code):
    """A benchmark that fails, is skipped, or is another one on one side has no verdict."""
    done = ab("work 1.0", fault, *WORK)
    assert done.exit_code == code, done.output
    assert message in done.stdout, done.stdout
    assert judged()["verdict"] == verdict


@pytest.mark.parametrize("given", ["", "true"])
def test_neither_side_takes_all_of_a_gpu(ab, monkeypatch, given):
    """Both live at once: JAX takes the memory of a GPU as it needs it, unless the user's environment says otherwise."""
    monkeypatch.delenv(MEMORY, raising=False)
    if given:
        monkeypatch.setenv(MEMORY, given)
    done = ab(f"memory {given or 'false'}", f"memory {given or 'false'}", "-k", "work", "--rounds", "8")
    assert "failed" not in done.stdout and "test_work" in done.stdout, done.output


def test_options_of_pytest_are_passed_on(ab, monkeypatch):
    """Those that choose what is timed, as they were given."""
    asked = []
    monkeypatch.setattr("meshproof.timing.ab.run_ab", lambda environments, arguments, *_: asked.append(arguments) or [])
    given = ["-k", "fsdp", "--target", "native", "--impl", "mine", "--size", "gpt2-124m"]
    done = ab("work 1.0", "work 1.0", *given)
    assert done.exit_code == 0, done.output
    assert asked == [["pytest", "benchmarks/test_toy.py", *given]]


def test_another_fact_is_listed(ab):
    """Beside the verdict on the time, whatever that is on a busy machine: it alone decides the exit code."""
    done = ab("work 1.0", "fact 1", *WORK)
    assert "bytes was 7, is 8 in its facts" in done.stdout, done.stdout
    assert done.exit_code == (judged()["verdict"] == "slower")


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("plain 1", "only benchmark.pedantic has rounds that can take turns"),
        ("silent 1", "does not say in"),
        ("text 1", "extra_info['identity'] of --from is 'mlp': expected a dict of what it is by name"),
    ],
)
def test_what_cannot_be_compared_is_refused(ab, fault, message):
    """A benchmark without rounds, or that does not say what it times, is no green verdict."""
    done = ab(fault, fault, *WORK)
    assert done.exit_code == 1
    assert judged()["verdict"] == "refused" and message in done.stdout


def test_what_is_timed_is_not_overwritten(ab):
    """By the rounds of it; and a side that names nothing is told."""
    done = ab("work 1.0", "work 1.0", "--json", "benchmarks/test_toy.py")
    assert done.exit_code == 2 and "the command reads this file, which would be overwritten" in done.output
    assert Path("benchmarks/test_toy.py").read_text(encoding="utf-8") == TOY
    empty = CliRunner().invoke(app, ["ab", "--from", " ", "--to", "jax"])
    assert empty.exit_code == 2 and "' ' names no stack; expected requirements such as" in empty.output


def paired(name, old, new):
    """A benchmark in one pair of processes: eight rounds of so many seconds on each side."""
    rounds = ([old] * 8, [new] * 8)
    ratio = compare_pairs(*rounds)
    return Paired(Comparison(name, ratio.verdict(), (), ratio), (rounds,))


def test_verdict_is_of_every_pair_of_processes():
    """Where one pair of processes says slower and the next does not, it cannot be told."""
    slow, same = paired("a", 0.1, 0.13), paired("a", 0.1, 0.1)
    assert [pair.comparison.outcome for pair in (slow, same)] == ["slower", "same"]
    assert join([slow, same]).comparison.outcome == "cannot tell"
    assert join([slow, slow]).comparison.outcome == "slower"
    assert join([slow, Paired(Comparison("a", "failed"))]).comparison.outcome == "failed"


@pytest.mark.parametrize(
    ("luck", "verdict", "sessions"),
    [
        ("++++++", "slower", 6),
        ("++=", "cannot tell", 3),
        ("+++++=", "cannot tell", 6),
        ("--+", "cannot tell", 3),
        ("+=", "cannot tell", 2),
        ("==", "same", 2),
    ],
)
def test_what_two_pairs_of_processes_tell_apart_is_timed_in_more(monkeypatch, luck, verdict, sessions):
    """Only that, and only until one pair says otherwise: two processes that are slow by chance are no verdict."""
    asked = []

    def run_session(environments, arguments, rounds, say, chosen, patience):
        asked.append(chosen)
        seconds = {"+": 0.13, "-": 0.07, "=": 0.1}[luck[len(asked) - 1]]
        found = [paired("lucky", 0.1, seconds), paired("steady", 0.1, 0.1)]
        return [each for each in found if chosen is None or each.comparison.name in chosen]

    monkeypatch.setattr("meshproof.timing.ab._run_session", run_session)
    lucky, steady = run_ab((), (), rounds=8, sessions=2)
    assert (lucky.comparison.outcome, len(lucky.rounds)) == (verdict, sessions)
    assert (steady.comparison.outcome, len(steady.rounds)) == ("same", 2)
    assert asked == [None, None] + [{"lucky"}] * (sessions - 2)


def test_failure_in_a_round_ends_the_benchmark_on_both_sides(ab):
    """Where a round raises on one side, the other side goes on to the next benchmark with it."""
    done = ab("work 1.0", "raise")
    assert done.exit_code == 1
    assert "--to failed: " in done.stdout and "out of memory" in done.stdout
    assert "--from skipped: Skipped: the other side cannot time it" in done.stdout


def test_crash_is_one_error(ab):
    """A process that dies ends the comparison with its side, its exit code and its last words."""
    done = ab("work 1.0", "crash")
    assert done.exit_code == 2
    assert "the process of --to ended early, with exit code 11" in done.stderr


@pytest.mark.parametrize(
    ("fault", "how"), [("hang", "--to says nothing for 20 s"), ("stop", "--to is stopped by SIGSTOP")]
)
def test_a_side_that_never_answers_is_one_error(ab, fault, how):
    """It ends the comparison in time, with its side, the benchmark, where it stood and what to do."""
    done = ab("work 1.0", fault, "-k", "other", "--case-timeout", "20")
    assert done.exit_code == 2, done.output
    assert f"{how}; it was to time benchmarks/test_toy.py::test_other" in done.stderr
    assert "needs a larger --case-timeout" in done.stderr and " in crash" in done.stderr


def test_rounds_that_could_not_be_written_are_not_timed(tmp_path):
    """A file in no folder is refused before an environment is made."""
    lost = tmp_path / "nowhere" / "rounds.json"
    done = CliRunner().invoke(app, ["ab", "--from", "jax==0.0.1", "--to", "jax==0.0.1", "--json", str(lost)])
    assert done.exit_code == 2
    assert done.stderr.startswith(f"meshproof: --json {lost}: no file can be written in {lost.parent}")


def test_nothing_to_compare_is_an_error(ab):
    """A selection without a benchmark is no green verdict."""
    done = ab("work 1.0", "work 1.0", "-k", "nothing")
    assert done.exit_code == 2
    assert "no benchmark to compare" in done.stderr
