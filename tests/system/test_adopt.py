"""`meshproof adopt`, as it is typed: what it writes is green, what it asks is right, what it refuses leaves nothing."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from meshproof.cli import app

ROOT = Path(__file__).parents[2]
HOME = "tests.implementations"


def meshproof(folder, *words):
    """Run the command in a folder."""
    variables = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-m", "meshproof", *words], cwd=folder, env=variables, capture_output=True, text=True
    )


def check(folder, module):
    """The counts of the suites on a module, and all that they print."""
    ran = meshproof(folder, "check", "--impl", module, "-q")
    counts = re.search(r"clauses: (\d+) failed, \d+ expected-failure, (\d+) proved", ran.stdout)
    assert counts, ran.stdout + ran.stderr
    return *map(int, counts.groups()), ran.stdout


def written(path):
    """The contract of a written module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.CONTRACT


@pytest.mark.parametrize(
    ("trainer", "least"),
    [
        pytest.param("PlainLoop", 22, marks=pytest.mark.thorough),
        pytest.param("Averaging", 22, marks=pytest.mark.thorough),
        ("ShardedModules", 24),
        pytest.param("GathersTokens", 23, marks=pytest.mark.thorough),
        pytest.param("Dropping", 27, marks=pytest.mark.thorough),
        pytest.param("Normalising", 22, marks=pytest.mark.thorough),
        ("linen", 28),
    ],
)
def test_what_is_written_is_green(tmp_path, trainer, least):
    """A plain loop, one with an average, NNX, with dropout or BatchNorm too, and Linen, from three members or more:
    nothing is asked, nothing fails."""
    adopted = meshproof(tmp_path, "adopt", f"{HOME}.unadopted:{trainer}", "--output", "mine.py")
    assert adopted.returncode == 0 and adopted.stdout == "written: mine.py\n", adopted.stdout + adopted.stderr
    source = (tmp_path / "mine.py").read_text()
    body = source.partition("class Adopted")[2]
    assert len([line for line in body.splitlines() if line.strip()]) <= 40
    failed, proved, said = check(tmp_path, "mine")
    assert failed == 0 and proved >= least, said


def test_a_batch_that_is_split_in_the_step_is_told(tmp_path):
    """It is whole where it enters; the axis of its examples is that of a constraint."""
    adopted = meshproof(tmp_path, "adopt", f"{HOME}.unadopted:SplitsInside", "--output", "mine.py")
    assert adopted.returncode == 0 and adopted.stdout == "written: mine.py\n", adopted.stdout + adopted.stderr
    contract, source = written(tmp_path / "mine.py"), (tmp_path / "mine.py").read_text()
    assert 'batch={"*": P()}' in source and 'batch_in_step={"*": P("data")}' in source
    assert {line.payload for line in contract.step} == {"gradients", "metrics"}
    failed, proved, said = check(tmp_path, "mine")
    assert failed == 0 and proved >= 20, said


def test_copies_that_are_stacked_are_copies(tmp_path):
    """As ``pmap`` takes them: data parallelism, and no parameter is split."""
    adopted = meshproof(tmp_path, "adopt", f"{HOME}.unadopted_pmap:Stacked", "--output", "mine.py")
    assert adopted.returncode == 0 and adopted.stdout == "written: mine.py\n", adopted.stdout + adopted.stderr
    contract = written(tmp_path / "mine.py")
    specs = (*contract.parameters.values(), *contract.optimizer_state.values())
    assert contract.device_dimension and {tuple(spec) for spec in specs} == {()}
    assert [(line.operation, line.payload) for line in contract.step] == [
        ("all-reduce", "gradients"),
        ("all-reduce", "metrics"),
    ]
    failed, proved, said = check(tmp_path, "mine")
    assert failed == 0 and proved >= 20, said


def test_equal_gradients_are_reduced_as_one(tmp_path):
    """As a compiler does with two biases that are added: nothing is asked, and the bytes of one are promised."""
    adopted = meshproof(tmp_path, "adopt", f"{HOME}.unadopted_pmap:AddsBiases", "--output", "mine.py")
    assert adopted.returncode == 0 and adopted.stdout == "written: mine.py\n", adopted.stdout + adopted.stderr
    assert written(tmp_path / "mine.py").step[0].bytes == 4 * (16 * 32 + 32 * 8 + 32)
    failed, proved, said = check(tmp_path, "mine")
    assert failed == 0 and proved >= 20, said


def test_first_steps_that_show_little_are_not_taken_for_more(tmp_path):
    """What three steps leave as it was is trained if its moment moves; two microbatches are no eight devices."""
    adopted = meshproof(tmp_path, "adopt", f"{HOME}.unadopted_microbatches:HardlyRises", "--output", "mine.py")
    assert adopted.returncode == 0 and adopted.stdout == "written: mine.py\n", adopted.stdout + adopted.stderr
    contract = written(tmp_path / "mine.py")
    assert not contract.device_dimension and {tuple(spec) for spec in contract.batch.values()} == {(None, "data")}
    assert list(contract.gradients) == ["*"] and contract.step[0].bytes == 4 * (16 * 32 + 32 * 8)
    failed, proved, said = check(tmp_path, "mine")
    assert failed == 0 and proved >= 20, said


def test_what_no_step_and_no_moment_shows_is_asked(tmp_path):
    """Whether it is trained; promised is that it is not."""
    adopted = meshproof(tmp_path, "adopt", f"{HOME}.unadopted_microbatches:KeepsNothing", "--output", "mine.py")
    asked = "? gradients: hidden: three steps leave them as they were, as if they were not trained: intended?"
    assert adopted.returncode == 0 and asked in adopted.stdout, adopted.stdout + adopted.stderr
    assert list(written(tmp_path / "mine.py").gradients) == ["out"]


@pytest.mark.thorough
def test_what_is_rounded_to_eight_bits_is_promised_and_asked(tmp_path):
    """Types by the words of a contract, with a question each."""
    adopted = meshproof(tmp_path, "adopt", "tests.healthy.eight_bits:Scaled", "--output", "mine.py")
    assert adopted.returncode == 0, adopted.stderr
    assert "? compute_dtype: 5 of 5 products multiply bfloat16 or 8 bits: intended?" in adopted.stdout
    assert [f"? quantised: {name} in" in adopted.stdout for name in ("f8e4m3fn", "f8e5m2")] == [True, True]
    contract = written(tmp_path / "mine.py")
    assert (contract.compute_dtype, contract.quantised) == ("bfloat16", ("float8_e4m3fn", "float8_e5m2"))


@pytest.mark.every_stack
def test_the_loop_of_the_page_is_what_it_declares(tmp_path):
    """docs/adapters/optax_loop.py, adopted, promises what it declares itself."""
    adopted = meshproof(tmp_path, "adopt", "docs.adapters.optax_loop:DataParallel")
    assert adopted.returncode == 0, adopted.stderr
    from docs.adapters.optax_loop import DataParallel

    assert written(tmp_path / "optax_loop_meshproof.py") == DataParallel.contract


def test_a_second_run_says_what_changed(tmp_path):
    """Of the same trainer nothing; of another step the lines of the contract, and the file stays until it is told."""
    target, path = f"{HOME}.unadopted:PlainLoop", tmp_path / "mine.py"
    assert meshproof(tmp_path, "adopt", target, "--output", "mine.py").returncode == 0
    text = path.read_text()
    again = meshproof(tmp_path, "adopt", target, "--output", "mine.py")
    assert (again.returncode, again.stdout) == (0, "mine.py: as seen\n")
    path.write_text(text.replace('"gradients", 3072', '"gradients", 6144'))
    differs = meshproof(tmp_path, "adopt", target, "--output", "mine.py")
    assert differs.returncode == 1 and "differs from what was seen; --write replaces it" in differs.stdout
    assert '-        Communication("all-reduce", ("data",), "gradients", 6144),' in differs.stdout
    assert '+        Communication("all-reduce", ("data",), "gradients", 3072),' in differs.stdout
    assert path.read_text() != text
    assert meshproof(tmp_path, "adopt", target, "--output", "mine.py", "--write").returncode == 0
    assert path.read_text() == text


def test_what_looks_wrong_is_asked_and_not_promised(tmp_path):
    """A state that is not donated, a batch that is nowhere split: two questions, and the clauses fail by them."""
    adopted = meshproof(tmp_path, "adopt", f"{HOME}.unadoptable:KeepsAndReplicates", "--output", "mine.py")
    assert adopted.returncode == 0, adopted.stderr
    assert re.search(r"\? train_step: the step donates 0 of the state's [\d,]+ bytes", adopted.stdout)
    assert "? batch: x and y: every device holds all examples" in adopted.stdout
    source = (tmp_path / "mine.py").read_text()
    assert "# ? x and y: every device holds all examples" in source and 'batch={"*": P("data")}' in source
    failed, _, said = check(tmp_path, "mine")
    assert failed and {"MEM-2", "SHD-4"} <= set(re.findall(r"[A-Z]+-\d+", said))


def test_how_experts_are_computed_with_is_asked_and_taken_over(tmp_path):
    """Where their tokens are gathered: their trainer's `computed` is the answer, and then nothing is asked."""
    kept = {}
    for trainer in ("GathersTokens", "GathersTokensUnsaid"):
        adopted = meshproof(tmp_path, "adopt", f"{HOME}.unadopted:{trainer}", "--output", f"{trainer}.py")
        assert adopted.returncode == 0, adopted.stderr
        assert ("then give the trainer `computed`" in adopted.stdout) == (trainer == "GathersTokensUnsaid")
        contract = written(tmp_path / f"{trainer}.py")
        kept[trainer] = {path: contract.spec("computed", path) for path in ("up", "down", "router")}
        assert any(line.payload == "parameters" for line in contract.step) == (trainer == "GathersTokensUnsaid")
    assert {path: tuple(spec) for path, spec in kept["GathersTokens"].items()} == {
        "up": ("data",),
        "down": ("data",),
        "router": (),
    }
    assert {tuple(spec) for spec in kept["GathersTokensUnsaid"].values()} == {()}


@pytest.mark.parametrize(
    ("target", "told"),
    [
        (f"{HOME}.unadoptable:OnNoMesh", "no mesh: the trainer has no member `mesh`, and of the 1 arrays"),
        (f"{HOME}.unadoptable:HidesItsStep", "train_step has no lower(): the step is hidden in Python control flow or"),
        (
            f"{HOME}.unadoptable:RaisesWhenRead",
            "train_step raised AttributeError: 'RaisesWhenRead' object has no attri",
        ),
        (f"{HOME}.unadoptable:GivesBatchesOnce", "which can be gone through once; expected a list of batches, or"),
        (f"{HOME}.unadoptable:TakesAKey", "train_step(state, batch, key) cannot be called with two"),
        (f"{HOME}.unadoptable:Draws", "two runs of the same three steps differ"),
        (f"{HOME}.unadoptable:DropsInItsLoss", "loss changed the state that it was given, in place: "),
        (f"{HOME}.unadoptable:RaisesInInit", "init(key) raised RuntimeError: no weights here"),
        (f"{HOME}.unadoptable:NeedsMore", "missing 1 required positional argument: 'config'"),
        (f"{HOME}.unadoptable:Lacking", "without init or state, batches or batch; expected a trainer"),
        (
            f"{HOME}.unadoptable:NamesNoParameter",
            "computed: ['experts'] match no parameter, expected patterns",
        ),
        (f"{HOME}.unadoptable:SaysASpecAlone", "expected a dict of PartitionSpec by pattern of parameters'"),
        (f"{HOME}.unadoptable:OnNoMush", "did you mean OnNoMesh?"),
        ("nowhere_at_all:Trainer", "looked in "),
        ("nowhere_at_all", "expected MODULE:OBJECT"),
    ],
)
def test_what_cannot_be_adopted_is_refused(tmp_path, monkeypatch, target, told):
    """In words, and nothing is written."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr(sys, "path", [*sys.path])
    refused = CliRunner().invoke(app, ["adopt", target, "--output", "mine.py"])
    assert refused.exit_code == 2 and told in refused.stderr, refused.output
    assert "Traceback" not in refused.stderr and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("path", "told"), [("absent/mine.py", "no file can be written in"), ("mine.txt", "expected the")]
)
def test_a_file_that_cannot_be_written_is_refused(tmp_path, monkeypatch, path, told):
    """Before anything runs."""
    monkeypatch.chdir(tmp_path)
    refused = CliRunner().invoke(app, ["adopt", f"{HOME}.unadopted:PlainLoop", "--output", path])
    assert refused.exit_code == 2 and told in refused.stderr and not list(tmp_path.iterdir())
