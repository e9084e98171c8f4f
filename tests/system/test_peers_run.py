"""A comparison of two processes: what it refuses, what it reports, and the page of results. PyTorch is not needed."""

import ast
import json
import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

import benchmarks.peers.__main__ as command
from benchmarks.host import NONE, Accelerators
from benchmarks.judges import BySingleDevice
from benchmarks.peers import measure, page, processes
from benchmarks.peers.gpt_case import PEERS, find_case, numbers
from benchmarks.peers.measure import places, summary, take_turns
from benchmarks.peers.processes import PeerError, Side

ROOT = Path(__file__).parents[2]
LOSSES = [5.0, 4.5, 4.0]
JUDGE = BySingleDevice(LOSSES, 0.1)


def invoke(*arguments):
    """The command as its user gives it."""
    app = command.typer.Typer()
    app.command()(command.main)
    return CliRunner().invoke(app, arguments)


@pytest.fixture
def installed(monkeypatch):
    """A host on which PyTorch is installed, and that has no accelerator."""
    monkeypatch.setattr(command, "find_spec", lambda name: SimpleNamespace(name=name))
    monkeypatch.setattr(command, "accelerators", lambda: NONE)


def fake(name, seconds, losses=LOSSES, kind="NVIDIA H200"):
    """A side whose windows take these seconds."""
    facts = {
        "versions": {name: "1.0", "cuda": None},
        "machine": {"device_kind": kind, "host": None},
        "peak_memory_bytes": 3 * 2**30,
    }
    windows = iter(seconds)

    def ask(what):
        return facts if what == "facts" else {"seconds": next(windows), "losses": list(losses)}

    return SimpleNamespace(name=name, ask=ask)


def result(jax_seconds, torch_seconds, size="gpt2-124m", measured=measure.SPEED):
    """A result of a size, of one session with these seconds."""
    case = find_case(size, "cpu")
    sides = fake("jax", jax_seconds), fake("torch", torch_seconds)
    session = take_turns(sides, JUDGE, len(jax_seconds), say=lambda line: None)
    return {
        "command": f"python -m benchmarks.peers --size {size}",
        "schema": measure.SCHEMA,
        "size": size,
        "measured": measured,
        "time": "2026-01-01T00:00:00+00:00",
        "driver": None,
        "identity": numbers(case),
        "judge": {"name": JUDGE.name},
        **summary(case, [session]),
    }


def test_rounds_take_turns():
    """A B B A: what slows the machine for a while slows both."""
    assert list(places(3)) == [0, 1, 1, 0, 0, 1]


def test_every_size_has_its_transformer():
    """Each is trained with GPT-2's Adam, in its own dtype; a size without a transformer is refused by name."""
    found = {size: numbers(find_case(size, "cpu")) for size in PEERS}
    assert {each["learning_rate"] for each in found.values()} == {3e-4}
    assert [each["dtype"] for each in found.values()] == ["float32"] * 2 + ["bfloat16"] * 4
    assert not any(each["rematerialised"] for each in found.values())
    with pytest.raises(ValueError, match="--size mlp-8192: expected one that has a transformer: tiny, small, gpt2"):
        find_case("mlp-8192", "cpu")


def test_numbers_follow_from_seconds():
    """Tokens per second, MFU and the ratio with its interval are those of the median, by the formulas named there."""
    found = result([0.1] * 8, [0.2] * 8)
    jax = found["frameworks"]["jax"]
    assert jax["seconds_per_step"] == {"median": 0.1, "low": 0.1, "high": 0.1}
    assert jax["tokens_per_second"] == pytest.approx(16 * 1024 / 0.1)
    assert jax["mfu"] == pytest.approx(found["model_flops"] / (0.1 * 989e12))
    ratio = found["jax_over_torch"]
    assert (ratio["guess"], ratio["low"], ratio["high"]) == pytest.approx((0.5, 0.5, 0.5))
    assert ratio["verdict"] == "faster" and found["losses_apart"] == 0


def test_intervals_hold_every_session():
    """A process that is slower for as long as it lives widens the interval, and leaves no verdict."""
    case = find_case("tiny", "cpu")
    sessions = [
        take_turns((fake("jax", [seconds] * 8), fake("torch", [0.1] * 8)), JUDGE, 8, say=lambda line: None)
        for seconds in (0.08, 0.12)
    ]
    found = summary(case, sessions)
    seconds = found["frameworks"]["jax"]["seconds_per_step"]
    assert (seconds["low"], seconds["high"]) == (0.08, 0.12)
    assert found["jax_over_torch"]["verdict"] == "cannot tell"


@pytest.mark.parametrize("wrong", [0, 1])
def test_wrong_losses_save_no_time(wrong):
    """A side whose losses are not those of the judge ends the run, by name and number."""
    sides = [fake(name, [0.1] * 8, [5.0, 4.5, 4.0 + 0.2 * (i == wrong)]) for i, name in enumerate(("jax", "torch"))]
    with pytest.raises(PeerError, match=rf"^{sides[wrong].name}: loss 3: .* saw 4\.2; .* no time is saved"):
        take_turns(sides, JUDGE, 8, say=lambda line: None)


def test_processes_answer_and_fail():
    """What a side raises, that it ended and that it says nothing are errors which name it."""
    side = Side("a list", list, [3, 1, 2])
    assert side.ask("index", 1) == 1
    with pytest.raises(PeerError, match=r"^a list failed at index: ValueError: 9 is not in list$"):
        side.ask("index", 9)
    side.close()
    with pytest.raises(PeerError, match=r"^the process of dead ended early, with exit code 3$"):
        Side("dead", os._exit, 3).ask("index")


def fill(bytes_):
    """What a device that is too small says, in as many words."""
    raise MemoryError(f"RESOURCE_EXHAUSTED: Out of memory\nallocating {bytes_} bytes\n" + "of buffers " * 999)


def test_process_that_cannot_be_built_says_why_in_one_line():
    """Also where it had ended before anything was asked of it."""
    side = Side("torch", fill, 7)
    side.process.join()
    with pytest.raises(PeerError) as failed:
        side.ask("warm_up")
    told = "torch failed at warm_up: MemoryError: RESOURCE_EXHAUSTED: Out of memory allocating 7 bytes of buffers"
    assert str(failed.value).startswith(told)
    assert len(str(failed.value).splitlines()) == 1 and len(str(failed.value)) < 500


def test_silent_process_is_given_up(monkeypatch):
    """A side that does not answer in time is given up."""
    monkeypatch.setattr(processes, "PATIENCE", 0.2)
    side = Side("asleep", time.sleep, 60)
    with pytest.raises(PeerError, match=r"^asleep says nothing for 0 s after being asked for window"):
        side.ask("window")
    side.close()


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--size", "gpt3"], "'gpt3' is not one of 'tiny', 'small', 'gpt2-124m', 'gpt2-124m-padded', 'gpt2-xl-1.5b', "),
        (["--size", "tiny", "--target", "tpu"], "'tpu' is not one of 'cpu', 'native'"),
        (["--size", "tiny", "--rounds", "3"], "'--rounds'"),
        (["--size", "tiny", "--target", "native"], "JAX finds no accelerator on this host; --target cpu compares"),
        (["--size", "tiny", "--output", "/none/a.json"], "--output /none/a.json: there is no folder /none; make it"),
    ],
)
def test_what_cannot_be_measured_is_refused(arguments, message):
    """With what was asked, and what would do."""
    refused = invoke(*arguments)
    assert refused.exit_code == 2
    assert message in " ".join(refused.output.replace("│", " ").split())


def test_missing_pytorch_is_named(monkeypatch):
    """With how to install it, before anything is run."""
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    refused = invoke("--size", "tiny")
    assert refused.exit_code == 2
    assert "PyTorch is not installed; `pip install 'meshproof[peers]'`" in refused.output


@pytest.mark.usefixtures("installed")
def test_other_accelerators_are_refused(monkeypatch):
    """Where JAX would drive a TPU, the peer has nothing to run on."""
    monkeypatch.setattr(command, "accelerators", lambda: Accelerators("tpu", 4, "TPU v5p"))
    refused = invoke("--size", "tiny")
    assert refused.exit_code == 2 and "JAX finds TPU v5p, a tpu; the peer runs on CUDA or a CPU" in refused.output


@pytest.mark.usefixtures("installed")
def test_results_are_written_with_their_command(monkeypatch, tmp_path):
    """The file has the full command; a run that fails writes none."""
    found = result([0.1] * 8, [0.2] * 8)
    del found["command"]
    monkeypatch.setattr(command, "measure", lambda *arguments, say: found)
    monkeypatch.setattr(command.sys, "argv", ["x", "--size", "gpt2-124m", "--output", "a b.json"])
    path = tmp_path / "result.json"
    assert invoke("--size", "gpt2-124m", "--output", str(path)).exit_code == 0
    saved = json.loads(path.read_text())
    assert saved["command"].endswith(" -m benchmarks.peers --size gpt2-124m --output 'a b.json'")
    assert saved["frameworks"] == found["frameworks"]

    def fail(*arguments, say):
        raise PeerError("torch: loss 3 is nan; no time is saved")

    monkeypatch.setattr(command, "measure", fail)
    other = tmp_path / "other.json"
    assert invoke("--size", "gpt2-124m", "--output", str(other)).exit_code == 2 and not other.exists()


def test_page_says_what_was_and_was_not_measured(tmp_path):
    """Each file with its numbers and command, and every size of which no speed was measured; a CPU measures none."""
    assert list(page.sections(tmp_path)) == [f"Not yet compared on an accelerator: {', '.join(PEERS)}."]
    for name, found in {
        "h200.json": result([0.1] * 8, [0.2] * 8),
        "laptop.json": result([0.1] * 8, [0.2] * 8, "tiny", measure.AGREEMENT),
    }.items():
        (tmp_path / name).write_text(json.dumps(found))
    h200, laptop, missing = page.sections(tmp_path)
    assert "of PyTorch's time: faster." in h200 and "1 × NVIDIA H200" in h200
    assert "| jax | 0.1 [0.1, 0.1] | 163,840 |" in h200 and "`python -m benchmarks.peers --size gpt2-124m`" in h200
    assert "of PyTorch's time, which says nothing." in laptop and measure.AGREEMENT in laptop
    assert (
        missing
        == "Not yet compared on an accelerator: tiny, small, gpt2-124m-padded, gpt2-xl-1.5b, gpt2-xl-1.5b-padded."
    )


def test_page_is_up_to_date():
    """The page in the repository is what its files say; `python -m benchmarks.peers.page` writes it."""
    text = (page.FOLDER / "README.md").read_text(encoding="utf-8")
    assert page.write(text, page.FOLDER) == text


def test_results_of_another_format_are_refused(tmp_path):
    """A file that is no result of this format is an error, not a blank."""
    (tmp_path / "old.json").write_text('{"schema": 0}')
    with pytest.raises(ValueError, match=r"old.json has schema 0, expected 1; measure it again"):
        list(page.sections(tmp_path))


def importers(root, package):
    """Files outside of benchmarks/peers and tests/ that import a package."""
    for path in sorted(root.rglob("*.py")):
        place = path.relative_to(root)
        if place.parts[0].startswith(".") or place.parts[0] == "tests" or place.parts[:2] == ("benchmarks", "peers"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in getattr(node, "names", [])] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            yield from (place.as_posix() for name in names if name.partition(".")[0] == package)


def test_nothing_else_needs_pytorch(tmp_path):
    """PyTorch is imported in benchmarks/peers alone; a planted import elsewhere is named."""
    assert not list(importers(ROOT, "torch"))
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "odd.py").write_text("def f():\n    from torch import nn\n")
    assert list(importers(tmp_path, "torch")) == ["benchmarks/odd.py"]
