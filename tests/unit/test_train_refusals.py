"""What the loop that users copy says where it cannot begin or go on: one line, exit code 2, and nothing is written."""

import errno
import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager

import pytest

from reference_impl import train
from reference_impl.lifecycle.choosing import choose
from reference_impl.lifecycle.run_folder import RunFolder
from reference_impl.lifecycle.training_data import Shuffled, fields_for
from tests.training import command

pytestmark = pytest.mark.any_stack

SETTINGS = {"model": "mlp", "batch": 64, "seed": 3}


@pytest.fixture(scope="module")
def four_steps(tmp_path_factory):
    """The folder of a run of four steps, with the checkpoints of two."""
    folder = tmp_path_factory.mktemp("run") / "run"
    code, said = command("--steps", 4, "--save-every", 2, "--checkpoints", folder)
    assert code == 0, said
    return folder


@pytest.fixture
def run_folder(four_steps, tmp_path):
    """A copy of it."""
    return shutil.copytree(four_steps, tmp_path / "run")


@contextmanager
def by_nobody():
    """As a user who may write nowhere here."""
    if os.geteuid():
        pytest.skip("only root can become another user")
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "run.json cannot be read: No such file or directory; it says what the run is; if"),
        ("{", "run.json cannot be read as JSON: "),
        ("[]", "run.json: expected model, batch, seed, saw []; "),
        ('{"model": "mlp"}', "run.json: expected model, batch, seed, saw {'model': 'mlp'}; "),
    ],
)
def test_a_run_that_does_not_say_what_it_is_is_refused(run_folder, content, told):
    """In one line, with the text that mends it: then the run goes on."""
    file = run_folder / "run.json"
    file.unlink() if content is None else file.write_text(content, encoding="utf-8")
    code, said = command("--steps", 5, "--resume", "--checkpoints", run_folder)
    assert (code, said.count("\n")) == (2, 1) and told in said
    file.write_text(said[said.index("write there ") + len("write there ") :], encoding="utf-8")
    assert RunFolder.open(run_folder, 3, SETTINGS, resume=True).steps() == [2, 4]


@pytest.mark.parametrize(
    ("option", "path", "told"),
    [
        ("--losses", "none/l.json", "expected a folder in which files can be written, saw No such file or directory"),
        ("--losses", "file/l.json", "expected a folder in which files can be written, saw Not a directory"),
        ("--losses", "", "expected the name of a file, saw a folder"),
        ("--checkpoints", "file", "expected a folder in which files can be written, saw File exists"),
        ("--checkpoints", "file/run", "expected a folder in which files can be written, saw Not a directory"),
    ],
)
def test_what_cannot_be_written_is_refused_before_the_first_step(tmp_path, option, path, told):
    """In one line, and nothing is left behind."""
    (tmp_path / "file").touch()
    also = ("--checkpoints", tmp_path / "run") if option == "--losses" else ()
    code, said = command("--steps", 1, option, tmp_path / path, *also)
    assert (code, said.count("\n")) == (2, 1)
    assert said.startswith(f"error: {option} {tmp_path / path}: {told}")
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--steps", 1, "--save-every", 2), "--save-every 2 needs --checkpoints: the folder to save in"),
        (("--steps", 1, "--keep", 2), "--keep 2 needs --checkpoints: the folder to save in"),
        (
            ("--compare", "l.svg", "--mesh", "data=2", "--resume"),
            "--compare trains each strategy on its own mesh and keeps no state: expected no --mesh, --resume",
        ),
        (("--steps", 1, "--epochs", 1), "--steps 1 and --epochs 1: expected one of them, each is the length of the"),
        (("--compare", "l.svg", "--steps", 1, "--epochs", 2), "--steps 1 and --epochs 2: expected one of them"),
    ],
)
def test_options_without_effect_are_refused(arguments, told):
    """In one line."""
    code, said = command(*arguments)
    assert (code, said.count("\n")) == (2, 1) and said.startswith(f"error: {told}")


@pytest.mark.parametrize("arguments", [(), ("--resume",)], ids=["a new run", "a resumed one"])
def test_a_folder_of_somebody_else_is_refused_before_the_first_step(run_folder, arguments):
    """In one line."""
    before = sorted(run_folder.rglob("*"))
    with by_nobody():
        code, said = command("--steps", 5, "--checkpoints", run_folder / ("" if arguments else "new"), *arguments)
    assert (code, said.count("\n")) == (2, 1) and "Permission denied" in said
    assert said.startswith(f"error: --checkpoints {run_folder}") and sorted(run_folder.rglob("*")) == before


def test_losses_may_be_written_beside_the_first_checkpoint(tmp_path):
    """Into the folder that the run makes."""
    code, said = command("--steps", 1, "--checkpoints", tmp_path / "run", "--losses", tmp_path / "run" / "l.json")
    assert code == 0, said
    assert len(json.loads((tmp_path / "run" / "l.json").read_text(encoding="utf-8"))["losses"]) == 1


@pytest.mark.parametrize("held", [None, {"begin": 0, "losses": [3.0] * 3, "seconds": [1.0] * 3}])
def test_a_run_that_has_all_its_steps_says_so(run_folder, tmp_path, held):
    """It trains none, shows no loss, and what there is of losses stays."""
    file = tmp_path / "l.json"
    if held:
        file.write_text(json.dumps(held), encoding="utf-8")
    code, said = command("--steps", 4, "--resume", "--checkpoints", run_folder, "--losses", file)
    assert (json.loads(file.read_text(encoding="utf-8")) if file.exists() else None) == held
    assert code == 0 and "nothing is trained: the run has all its 4 steps; --steps or --epochs of more" in said
    assert "nan" not in said and "epoch 1" not in said


def cut(step):
    """The file of the arrays is cut."""
    file = max((step / "state").rglob("*"), key=lambda path: path.stat().st_size)
    file.write_bytes(file.read_bytes()[:10])


def empty(step):
    """Nothing is left in the folder."""
    shutil.rmtree(step)
    step.mkdir()


def rename(step):
    """One bit of a key is flipped."""
    file = step / "data" / "process_0-of-1.json"
    file.write_bytes(file.read_bytes().replace(b"number of examples", b"number of dxamples"))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Orbax raises once a shard
@pytest.mark.parametrize(
    "damage",
    [cut, empty, rename, lambda step: shutil.rmtree(step / "data")],
    ids=["cut", "empty", "another key", "no data"],
)
def test_a_damaged_checkpoint_says_how_to_go_on(run_folder, damage):
    """Moved away, the run goes on from the one before; where there is none, that is said."""
    last = run_folder / "step_000004"
    damage(last)
    code, said = command("--steps", 5, "--resume", "--checkpoints", run_folder)
    assert (code, said.count("\n")) == (2, 1) and "bound method" not in said
    assert said.endswith(f"; to go on from step 2, move {last} away and pass --resume again\n")
    if damage is cut:
        assert re.search(r"restore an earlier checkpoint: state/\S+ is not what was written; to go on", said), said
    last.rename(run_folder / "damaged")
    strategy = choose("fsdp", "jax", "mlp", {"data": 8}, 64)
    data = train.Run(strategy, Shuffled(fields_for(strategy.network), 64, 3)).feed.data
    assert RunFolder.open(run_folder, 3, SETTINGS, resume=True).restore(strategy, data)[0] == 2
    damage(run_folder / "step_000002")
    code, said = command("--steps", 5, "--resume", "--checkpoints", run_folder)
    assert code == 2 and said.endswith("; there is no earlier checkpoint: start a new run in a new folder\n")


def test_another_state_is_not_taken_for_damage(run_folder):
    """No checkpoint of it is to be moved away."""
    code, said = command("--steps", 5, "--resume", "--checkpoints", run_folder, "--framework", "nnx")
    assert code == 2 and "is not a checkpoint of this state" in said and "away" not in said


def test_a_folder_that_a_run_uses_is_refused(tmp_path):
    """Two that began at once would write one ``run.json``, and neither could be resumed."""
    folder = tmp_path / "run"
    first = f"from reference_impl.lifecycle.run_folder import *; from pathlib import Path; path = Path({str(folder)!r})"
    begun = f"{first}; RunFolder.open(path, 3, {SETTINGS!r}, False); print('open', flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", begun], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"open\n"
        with pytest.raises(ValueError, match="is of a run that goes on: wait for its end, or name a new folder"):
            RunFolder.open(folder, 3, SETTINGS | {"seed": 4}, False)
        process.kill()
    assert json.loads((folder / "run.json").read_text(encoding="utf-8")) == SETTINGS
    assert RunFolder.open(folder, 3, SETTINGS, False)


def test_a_folder_that_cannot_be_locked_is_used(tmp_path, monkeypatch):
    """Some network file systems lock no folders."""

    def refuse(held, how):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    assert RunFolder.open(tmp_path / "run", 3, SETTINGS, False)
