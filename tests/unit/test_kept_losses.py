"""The file of a run's losses: what a resumed run adds to it, what is not replaced, and what it is written after."""

import json
import os
import shutil

import pytest

from meshproof.observing.background_saves import no_file_over
from reference_impl import train
from tests.training import command

pytestmark = pytest.mark.any_stack


@pytest.fixture(scope="module")
def four_steps(tmp_path_factory):
    """The folder of a run of four steps."""
    folder = tmp_path_factory.mktemp("run") / "run"
    code, said = command("--steps", 4, "--checkpoints", folder)
    assert code == 0, said
    return folder


@pytest.fixture
def run_folder(four_steps, tmp_path):
    """A copy of it."""
    return shutil.copytree(four_steps, tmp_path / "run")


def losses_of(*numbers, begin=0):
    """A file of losses of these steps, as text."""
    return json.dumps({"begin": begin, "losses": numbers, "seconds": numbers})


def test_losses_of_a_resumed_run_come_after_those_before(run_folder, tmp_path):
    """From the step that was resumed; the mean that is told is of what this process has trained of the epoch."""
    file = tmp_path / "l.json"
    file.write_text(losses_of(7.0, 6.0, 5.0, 4.0, 3.0), encoding="utf-8")
    code, said = command("--steps", 6, "--resume", "--checkpoints", run_folder, "--losses", file)
    assert code == 0, said
    written = json.loads(file.read_text(encoding="utf-8"))
    assert written["begin"] == 0 and written["losses"][:4] == [7.0, 6.0, 5.0, 4.0]
    assert len(written["losses"]) == len(written["seconds"]) == 6
    assert f"step 6: mean loss {sum(written['losses'][4:]) / 2:.6f} since step 4, " in said


def test_losses_of_a_new_run_are_written_anew(tmp_path):
    """Over those of an older one; its mean is that of the epoch."""
    file = tmp_path / "l.json"
    file.write_text(losses_of(7.0, 6.0, begin=9), encoding="utf-8")
    code, said = command("--steps", 1, "--losses", file)
    written = json.loads(file.read_text(encoding="utf-8"))
    assert code == 0 and written["begin"] == 0 and len(written["losses"]) == 1
    assert f"step 1: mean loss {written['losses'][0]:.6f}, " in said


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (losses_of(1.0, begin=9), "up to step 4, from which the run goes on, saw those of steps 9 to 10; name another"),
        (losses_of(3.0, 2.0, 1.0), "up to step 4, from which the run goes on, saw those of steps 0 to 3; name another"),
    ],
    ids=["behind", "a gap"],
)
def test_losses_that_a_run_does_not_continue_are_not_replaced(run_folder, tmp_path, content, told):
    """Nor is a step taken."""
    file = tmp_path / "l.json"
    file.write_text(content, encoding="utf-8")
    code, said = command("--steps", 6, "--resume", "--checkpoints", run_folder, "--losses", file)
    assert (code, said.count("\n")) == (2, 1) and f"error: --losses {file}: expected the losses {told}" in said
    assert file.read_text(encoding="utf-8") == content and not (run_folder / "step_000006").exists()


@pytest.mark.parametrize(
    "content",
    [
        *["", "notes of mine", "[]", '{"begin": 0, "losses": [1.0]}', '{"begin": 0, "losses": [1.0], "seconds": []}'],
        *['{"losses": [], "seconds": []}', '{"begin": 0, "losses": ["1"], "seconds": [1]}', losses_of(1.0, begin=-1)],
    ],
)
def test_what_is_no_file_of_losses_is_not_replaced(tmp_path, content):
    """By a new run neither, which leaves no folder."""
    file = tmp_path / "l.json"
    file.write_text(content, encoding="utf-8")
    code, said = command("--steps", 1, "--checkpoints", tmp_path / "run", "--losses", file)
    assert (code, said.count("\n")) == (2, 1)
    assert said == f"error: --losses {file}: expected a file of losses, saw {content[:60]!r}; name another file\n"
    assert file.read_text(encoding="utf-8") == content and [path.name for path in tmp_path.iterdir()] == ["l.json"]


def test_a_pipe_is_no_file_of_losses(tmp_path):
    """Nobody waits for what is written into it."""
    os.mkfifo(tmp_path / "pipe")
    code, said = command("--steps", 1, "--losses", tmp_path / "pipe")
    assert code == 2 and "pipe: expected the name of a file, saw a device or a pipe" in said


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(("room", "kept"), [(1000, 2), (60, 1)], ids=["enough for losses", "for nothing"])
def test_a_save_that_failed_takes_no_losses_along(tmp_path, room, kept):
    """They are written; where they cannot be, that is told too, and the older ones stay."""
    file = tmp_path / "l.json"
    file.write_text(losses_of(9.0), encoding="utf-8")
    with no_file_over(room):
        code, said = command("--steps", 2, "--checkpoints", tmp_path / "run", "--losses", file)
    errors = [line for line in said.splitlines() if line.startswith("error: ")]
    assert code == 1 and errors[0].startswith("error: step 2 is not saved, nor was one before: ")
    assert errors[1:] == [f"error: --losses {file} is not written: File too large"] * (kept == 1)
    losses = json.loads(file.read_text(encoding="utf-8"))["losses"]
    assert len(losses) == kept and (losses == [9.0]) == (kept == 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["l.json", "run"]


def test_a_step_that_raised_takes_no_losses_along(tmp_path, monkeypatch):
    """What it raised is not caught."""

    class Raising(train.Run):
        def step(self, state, number):
            if number == 2:
                raise RuntimeError("a device is lost")
            return super().step(state, number)

    monkeypatch.setattr(train, "Run", Raising)
    with pytest.raises(AssertionError, match="a device is lost"):
        command("--steps", 3, "--losses", tmp_path / "l.json")
    assert len(json.loads((tmp_path / "l.json").read_text(encoding="utf-8"))["losses"]) == 2
