"""A baseline is what was promoted: never a run that failed, never a slower one unseen, never another machine's."""

import json
from contextlib import nullcontext

import pytest
from typer.testing import CliRunner

from meshproof.cli import app
from meshproof.timing.baselines import ACCEPTABLE, choose, promote, read_baseline, read_baselines
from meshproof.timing.comparison import ALONE, compare
from meshproof.timing.runs import Benchmark, RunError
from tests.timings import FACTS, IDENTITY, entry, run, save

A, B, RENAMED = (f"test_toy.py::test_time[{name}]" for name in ("a", "b", "renamed"))


@pytest.fixture
def folder(tmp_path):
    """A folder with a baseline of two benchmarks."""
    promote([save(tmp_path / "first.json", entry(A), entry(B))], tmp_path / "baselines")
    return tmp_path / "baselines"


def judged(folder, *entries):
    """The outcomes of a run against the baseline."""
    [baseline] = read_baselines(folder)
    new = [Benchmark.parse(each) for each in run(*entries)["benchmarks"]]
    return {found.name: found for found in baseline.compare({benchmark.name: benchmark for benchmark in new})}


def test_baseline_has_the_name_of_its_machine(folder):
    """One file for each machine, in which nothing is of the Python version."""
    assert [path.name for path in folder.iterdir()] == ["cpu-cpu-8-some-cpu.json"]
    assert choose(
        read_baselines(folder), {key: IDENTITY[key] for key in ("platform", "device_kind", "devices", "host")}
    )


def test_every_benchmark_is_accounted_for(folder):
    """What only one of the two has is listed: a renamed benchmark is one that is missing and one that is new."""
    outcomes = {name: found.outcome for name, found in judged(folder, entry(A, seed=1), entry(RENAMED)).items()}
    assert outcomes == {A: "same", RENAMED: "new", B: "missing"}


@pytest.mark.parametrize(
    ("key", "now", "message"),
    [
        ("device_kind", "H100", "device_kind was 'cpu', is 'H100'"),
        ("devices", 4, "devices was 8, is 4"),
        ("dtype", "bfloat16", "dtype was 'float32', is 'bfloat16'"),
        ("model", "mlp/small", "model was 'mlp/tiny', is 'mlp/small'"),
        ("host", None, "host was 'Some CPU', is None"),
        ("batch", 8, "batch was not there, is 8"),
    ],
)
def test_different_things_are_not_compared(folder, key, now, message):
    """A time of anything else is refused, with both values and what to do, however fast it is."""
    found = judged(folder, entry(A, identity={key: now}), entry(B))[A]
    assert found.failed and found.outcome == "refused" and found.ratio is None
    assert f"{message} in its identity" in str(found) and "promote" in str(found)


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        (FACTS | {"bytes_by_axis": {"data": 1001}}, "bytes_by_axis / data was 1,000, is 1,001"),
        (FACTS | {"bytes_by_axis": {"data": 1000, "model": 0}}, "bytes_by_axis / model was not there, is 0"),
        (FACTS | {"flops": 2e6 + 1e-9}, "flops was 2000000.0, is 2000000.000000001"),
        ({}, "flops was 2000000.0, is not there"),
    ],
)
def test_changed_fact_is_a_failure(folder, facts, message):
    """A fact that differs by one byte fails, though the time is the same."""
    found = judged(folder, entry(A, seed=1, facts=facts), entry(B))[A]
    assert found.failed and found.outcome == "changed"
    assert f"{message} in its facts" in str(found)


GPU = {"platform": "gpu", "device_kind": "NVIDIA H200", "host": None}


@pytest.mark.parametrize(
    ("identity", "was", "now", "told"),
    [
        (GPU, 10_141_139_808, 10_141_230_712, None),
        (GPU, 1_433_104, 34_723_864, None),
        (GPU, 10_141_139_808, 11_736_131_960, "peak_memory_bytes was 10,141,139,808, is 11,736,131,960"),
        (GPU, 10_141_139_808, 8_000_000_000, "peak_memory_bytes was 10,141,139,808, is 8,000,000,000"),
        (GPU, 10_141_139_808, None, "peak_memory_bytes was 10,141,139,808, is None"),
        ({}, 10_141_139_808, 10_141_139_809, "peak_memory_bytes was 10,141,139,808, is 10,141,139,809"),
    ],
)
def test_memory_of_a_gpu_may_differ_as_tuning_does(tmp_path, identity, was, now, told):
    """As one program's did in two processes of an H200: runs so apart are one baseline. On a CPU no byte may differ."""
    first, second = (
        save(tmp_path / f"{i}.json", entry(A, seed=i, identity=identity, facts=FACTS | {"peak_memory_bytes": peak}))
        for i, peak in enumerate((was, now))
    )
    folder = promote([first], tmp_path / "baselines").parent
    again = entry(A, seed=1, identity=identity, facts=FACTS | {"peak_memory_bytes": now})
    found = judged(folder, again)[A]
    assert (found.outcome == "changed") == bool(told) and (told or "") in str(found)
    with pytest.raises(RunError, match=told) if told else nullcontext():
        promote([first, second], tmp_path / "both")


def test_time_and_stack_may_differ():
    """Other versions of the stack are what is compared, and no other identity."""
    old, new = (Benchmark.parse(entry(A, seed=seed, **stack)) for seed, stack in ((0, {}), (1, {"jax": "0.12.0.1"})))
    assert compare([old], new).outcome == "same"


def test_one_run_is_said_to_know_little():
    """What is slower than one run may be the luck of a process; than three, it is not said to be."""
    old = [Benchmark.parse(entry(A, seed=seed)) for seed in range(3)]
    slow = Benchmark.parse(entry(A, 0.2, seed=9))
    alone, together = compare(old[:1], slow), compare(old, slow)
    assert alone.outcome == together.outcome == "slower"
    assert ALONE in alone.details and ALONE not in together.details


def test_slower_run_is_not_promoted(tmp_path, folder):
    """A run that regressed becomes the baseline only where that is said."""
    before = read_baselines(folder)
    slow = save(tmp_path / "slow.json", entry(A, 0.13, seed=1), entry(B, seed=1))
    with pytest.raises(RunError, match=r"test_time\[a\]: slower: was 0\.1(.|\n)* --accept 'slower'$") as refused:
        promote([slow], folder)
    assert "test_time[b]" not in str(refused.value)
    assert read_baselines(folder) == before
    promote([slow], folder, ["slower"])
    assert judged(folder, entry(A, 0.13, seed=2), entry(B))[A].outcome == "same"


@pytest.mark.parametrize(
    ("entries", "kind"),
    [
        ([entry(A, witness=0.014), entry(B)], "cannot tell"),
        ([entry(A, facts={}), entry(B)], "changed"),
        ([entry(A, identity={"dtype": "bfloat16"}), entry(B)], "refused"),
        ([entry(A)], "missing"),
        ([entry(A, identity={"host": "Other CPU"}), entry(B, identity={"host": "Other CPU"})], "machine"),
    ],
)
def test_what_is_not_like_the_baseline_is_accepted_by_name(tmp_path, folder, entries, kind):
    """Each thing that speaks against a promotion is named with what would accept it."""
    path = save(tmp_path / "other.json", *entries)
    with pytest.raises(RunError, match=rf"not promoted:(.|\n)*to accept all of this: --accept '{kind}'$"):
        promote([path], folder, ACCEPTABLE.keys() - {kind})
    promote([path], folder, [kind])


def test_what_changed_and_is_slower_is_accepted_as_both(tmp_path, folder):
    """An upgrade that moves a fact of every benchmark hides no time."""
    slow = save(tmp_path / "slow.json", entry(A, 0.2, seed=1, facts={}), entry(B, seed=1, facts={}))
    with pytest.raises(RunError, match=r"to accept all of this: --accept 'slower'$") as refused:
        promote([slow], folder, ["changed"])
    assert "test_time[a]: changed: " in str(refused.value) and "test_time[b]" not in str(refused.value)
    promote([slow], folder, ["changed", "slower"])


def test_many_small_steps_are_one_large_one(tmp_path, folder):
    """Each run is as fast as the one before, and the last is slower than the first: it is accepted as such."""
    runs = [save(tmp_path / f"{n}.json", entry(A, 0.1 * 1.03**n, seed=n), entry(B, seed=n)) for n in range(1, 4)]
    promote(runs[:1], folder)
    promote(runs[1:2], folder)
    with pytest.raises(RunError, match=r"test_time\[a\]: slower: .* 1.09× .*, compared with the first baseline"):
        promote(runs[2:], folder)
    promote(runs[2:], folder, ["slower"])
    promote([save(tmp_path / "same.json", entry(A, 0.1 * 1.03**3, seed=9), entry(B, seed=9))], folder)


def test_each_size_has_its_own_baseline(tmp_path, folder):
    """A run of another size replaces none, on the same machine or another."""
    small = save(tmp_path / "small.json", entry(A, identity={"size": "small"}))
    path = promote([small], folder)
    assert path.name == "cpu-cpu-8-some-cpu-small.json"
    assert len(read_baselines(folder)) == 2
    promote([save(tmp_path / "again.json", entry(A, seed=1, identity={"size": "small"}))], folder)
    elsewhere = save(tmp_path / "elsewhere.json", entry(A, identity={"size": "small", "host": "Other CPU"}))
    with pytest.raises(RunError, match=r"is of another machine: .*host was 'Some CPU', is 'Other CPU'"):
        promote([elsewhere], folder)


def test_two_baselines_of_one_machine_are_an_error(folder):
    """A copy that was left beside it is compared with by nobody, and replaced by no promotion."""
    [path] = folder.iterdir()
    (folder / "a-copy.json").write_bytes(path.read_bytes())
    with pytest.raises(RunError, match=r"a-copy.json and \S+some-cpu.json are all of this machine: remove"):
        choose(read_baselines(folder), read_baseline(path).machine)


@pytest.mark.parametrize("problems", [{A: "failed in call"}, {"the run": "did not finish (interrupted)"}])
def test_broken_run_is_never_promoted(tmp_path, problems):
    """A run in which a test failed, or that was interrupted, is no baseline, whatever is accepted."""
    path = save(tmp_path / "broken.json", entry(B), problems=problems)
    with pytest.raises(RunError, match=r"this cannot be accepted: .*(failed in call|interrupted)"):
        promote([path], tmp_path / "baselines", list(ACCEPTABLE))
    assert not (tmp_path / "baselines").exists()


def test_regressed_run_stays_one_without_its_baseline(tmp_path):
    """Deleting the baseline does not make the run that was slower than it a good one."""
    path = save(tmp_path / "slow.json", entry(A), outcomes={A: "slower"})
    with pytest.raises(RunError, match=r"test_time\[a\]: slower when it was run(.|\n)*--accept 'slower'"):
        promote([path], tmp_path / "baselines")


def test_several_runs_are_one_baseline(tmp_path):
    """Runs of the same code are promoted together, and those of other code are not."""
    first, second = (save(tmp_path / f"{seed}.json", entry(A, seed=seed)) for seed in (0, 1))
    assert len(read_baseline(promote([first, second], tmp_path / "baselines")).of(A)) == 2
    for other, message in (
        (entry(A, jax="0.12.0.1"), "jax was '0.10.2', is '0.12.0.1'"),
        (entry(A, facts={}), "flops was"),
        (entry(A, identity={"host": "Other CPU"}), "host was 'Some CPU', is 'Other CPU'"),
        (entry(B), r"test_time\[a\] was 'there', is not there"),
        (entry(A), r"test_time\[a\] has the same times in both: they are one run"),
    ):
        with pytest.raises(RunError, match=f"not runs of the same code: .*{message}"):
            promote([first, save(tmp_path / "other.json", other)], tmp_path / "baselines")


def test_a_baseline_says_what_it_can_tell(tmp_path):
    """The further its runs are apart, the less: nobody waits for a verdict that cannot come."""

    def reach(*seconds):
        folder = tmp_path / "-".join(map(str, seconds))
        runs = [
            save(tmp_path / f"{seed}.json", entry(A, each, seed=2 * seed), entry(B, seed=2 * seed + 1))
            for seed, each in enumerate(seconds)
        ]
        promoted = CliRunner().invoke(app, ["baseline", "promote", *map(str, runs), "--folder", str(folder)])
        assert promoted.exit_code == 0, promoted.output
        return promoted.stdout

    assert "is now the baseline (1 run). It gives false alarms" in reach(0.1)
    alike, apart = (
        float(
            reach(0.1, 0.1, last).partition("now the baseline (3 runs). Slower means more than ")[2].partition("×")[0]
        )
        for last in (0.1, 0.3)
    )
    assert 1.05 < alike < 1.2 and apart > 3


def test_plain_run_is_not_promoted(tmp_path):
    """A run without the plugin may hold tests that failed: it is refused."""
    path = tmp_path / "plain.json"
    path.write_text(json.dumps({"benchmarks": [entry(A)]}), encoding="utf-8")
    with pytest.raises(RunError, match="saved without meshproof's plugin"):
        promote([path], tmp_path / "baselines")


def test_commands(tmp_path, folder):
    """`meshproof baseline promote` says what it did or why not; `show` prints machine, stack and times."""
    invoke = lambda *words: CliRunner().invoke(app, ["baseline", *map(str, words), "--folder", str(folder)])  # noqa: E731
    slow = save(tmp_path / "slow.json", entry(A, 0.13), entry(B))
    refused = invoke("promote", slow)
    assert refused.exit_code == 2 and "slower" in refused.stderr and "Traceback" not in refused.stderr
    assert invoke("promote", slow, "--accept", "slower").exit_code == 0
    assert "expected some of slower, cannot tell" in invoke("promote", slow, "--accept", "all").stderr
    shown = invoke("show")
    assert shown.exit_code == 0
    for part in ("host Some CPU", "jax 0.10.2", "baseline (1 run)", "test_time[a]", "0.13"):
        assert part in shown.stdout
    [path] = folder.iterdir()
    path.unlink()
    assert invoke("show").exit_code == 2


def test_a_file_for_the_folder_is_refused(tmp_path):
    """Before a run is read."""
    (tmp_path / "file").write_text("kept")
    told = CliRunner().invoke(app, ["baseline", "promote", "gone.json", "--folder", str(tmp_path / "file")])
    assert told.exit_code == 2 and f"--folder {tmp_path / 'file'}: nothing can be written in " in told.stderr
