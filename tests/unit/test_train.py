"""The loop that users copy: a resumed run is the run that was not stopped, bit for bit, and bad input is named."""

import io
import re
from contextlib import ExitStack

import jax
import numpy as np
import pytest
from rich.console import Console

import reference_impl
from meshproof.observing.background_saves import no_file_over
from reference_impl import train
from reference_impl.lifecycle.choosing import choose, parse_mesh
from reference_impl.lifecycle.loss_curves import draw
from reference_impl.lifecycle.run_folder import RunFolder, SaveError
from reference_impl.lifecycle.training_data import CORPUS, Shuffled, fields_for, order, windows

pytestmark = pytest.mark.any_stack

PAGES = "single_device", "fsdp", "fsdp_shard_map"
SETTINGS = {"model": "mlp", "batch": 64, "seed": 3}


@pytest.fixture
def strategy():
    """FSDP of the perceptron on eight devices."""
    return choose("fsdp", "jax", "mlp", {"data": 8}, 64)


@pytest.fixture
def silent():
    """A console that nobody reads."""
    return Console(file=io.StringIO())


def run_of(strategy, seed=3):
    """A run on the strategy's data."""
    return train.Run(strategy, Shuffled(fields_for(strategy.network), strategy.batch_size, seed))


def bits(state):
    """Every leaf of a state as bytes."""
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(state)]


def test_every_page_of_the_book_has_data():
    """In the framework that it is written in, on its own mesh; also pages of which there are variants alone."""
    pages = {form.name: form.framework for form in reversed([*reference_impl.strategies()])}
    for name, framework in pages.items():
        form = choose(name, framework, "", None, 0)
        assert Shuffled(fields_for(form.network), form.batch_size, 0).steps_per_epoch > 1, name


def test_a_resumed_run_is_bitwise_the_run_that_was_not_stopped(strategy, silent, tmp_path):
    """Of 40 steps over two epochs: 20 and 20 are the same as 40 at once, in every leaf and every loss."""
    whole, first, second = (run_of(strategy) for _ in range(3))
    folder = RunFolder.open(tmp_path / "run", 3, SETTINGS, resume=False)
    expected, _ = train.train(whole, strategy.init(jax.random.key(3)), 0, 40, None, 0, silent, train.Stop())
    train.train(first, strategy.init(jax.random.key(3)), 0, 20, folder, 0, silent, train.Stop())
    step, state = RunFolder.open(tmp_path / "run", 3, SETTINGS, resume=True).restore(strategy, second.feed.data)
    assert step == 20
    resumed, number = train.train(second, state, step, 40, folder, 0, silent, train.Stop())
    assert number == 40
    assert bits(resumed) == bits(expected)
    assert first.losses + second.losses == whole.losses
    assert whole.losses[-1] < whole.losses[0]
    assert folder.steps() == [20, 40]


def test_a_signal_stops_after_the_step_and_saves_it(strategy, silent, tmp_path):
    """A loop that is asked to stop before it begins trains nothing; one asked in step 3 saves step 3."""
    run, stop = run_of(strategy), train.Stop()
    folder = RunFolder.open(tmp_path, 3, SETTINGS, resume=False)

    class Stopping(train.Run):
        def step(self, state, number):
            stop.number = 15 if number == 2 else 0
            return super().step(state, number)

    stopping = Stopping(run.strategy, run.data)
    _, number = train.train(stopping, strategy.init(jax.random.key(3)), 0, 9, folder, 2, silent, stop)
    assert number == 3
    assert folder.steps() == [2, 3]


def test_each_epoch_is_a_permutation_of_its_own():
    """Disjoint batches of one epoch are all examples; another epoch and another seed have another order."""
    data = Shuffled({"x": np.arange(64), "y": np.arange(64)}, 16, seed=0)
    epochs = [np.concatenate([data.batch(4 * epoch + i)["x"] for i in range(4)]) for epoch in range(2)]
    for epoch in epochs:
        assert sorted(epoch) == list(range(64))
    assert list(epochs[0]) != list(epochs[1])
    assert list(order(0, 1, 64)) != list(epochs[0])


def test_the_text_is_read_back_from_its_tokens():
    """Each y is the next character of x, and tokens are those of the text."""
    text = CORPUS.read_text(encoding="ascii")
    fields = windows(text, 16, 96)
    letters = ["\n" if token == 0 else chr(token + 31) for token in fields["x"][1]]
    assert "".join(letters) == text[8:24]
    assert (fields["x"][:, 1:] == fields["y"][:, :-1]).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("fdsp", "jax", "", None, 0), "unknown strategy 'fdsp': expected one of context_parallel, "),
        (("fsdp", "torch", "", None, 0), "fsdp is not in framework 'torch': expected one of jax, linen, nnx"),
        (("fsdp", "jax", "bert", None, 0), "does not train model 'bert': expected one of "),
        (("fsdp", "jax", "gpt", {"data": 7}, 0), "embed=64 is not divisible by data=7"),
        (("fsdp", "jax", "gpt", {"model": 8}, 0), "is mapped to 'data', the mesh has ['model']"),
    ],
)
def test_what_the_book_does_not_have_is_named(arguments, message):
    """With what there is, or with both numbers."""
    with pytest.raises(ValueError) as raised:
        choose(*arguments)
    assert message in str(raised.value)


@pytest.mark.parametrize("text", ["data", "data=0", "data=x", "data=2,data=4", "=8", "data=8,"])
def test_a_mesh_that_is_none_is_named(text):
    """With an example of one."""
    with pytest.raises(ValueError, match="as data=2,model=4"):
        parse_mesh(text)
    assert parse_mesh("data=2, model=4") == {"data": 2, "model": 4}


def test_a_data_set_smaller_than_a_batch_is_named(strategy):
    """With both numbers."""
    with pytest.raises(ValueError, match="has 2048 examples: expected a batch of 1 to 2048, saw 4096"):
        Shuffled(fields_for(strategy.network), 4096, 0)


def test_a_run_overwrites_none_and_continues_only_itself(strategy, tmp_path):
    """Nothing to resume, checkpoints of another run, and another model."""
    with pytest.raises(ValueError, match="has no checkpoint to resume"):
        RunFolder.open(tmp_path, 3, SETTINGS, resume=True)
    with pytest.raises(ValueError, match="--resume needs --checkpoints"):
        RunFolder.open(None, 3, SETTINGS, resume=True)
    folder = RunFolder.open(tmp_path, 3, SETTINGS, resume=False)
    (tmp_path / "step_000007.orbax-checkpoint-tmp").mkdir()
    assert folder.steps() == []
    folder.save(strategy, strategy.init(jax.random.key(3)), 1, run_of(strategy).feed.data)
    folder.wait()
    with pytest.raises(FileExistsError, match="has checkpoints already: pass --resume"):
        RunFolder.open(tmp_path, 3, SETTINGS, resume=False)
    with pytest.raises(ValueError, match="is of a run with model 'mlp', not 'gpt'"):
        RunFolder.open(tmp_path, 3, SETTINGS | {"model": "gpt"}, resume=True)
    (tmp_path / "run.json").write_text("{", encoding="utf-8")
    with pytest.raises(ValueError, match=r"run\.json cannot be read as JSON"):
        RunFolder.open(tmp_path, 3, SETTINGS, resume=True)


def test_the_last_checkpoints_stay(strategy, silent, tmp_path):
    """Of those of steps 1 to 4, two."""
    folder = RunFolder.open(tmp_path, 2, SETTINGS, resume=False)
    train.train(run_of(strategy), strategy.init(jax.random.key(3)), 0, 4, folder, 1, silent, train.Stop())
    assert folder.steps() == [3, 4]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("end", [3, 500], ids=["the exit", "a step"])
def test_a_save_that_failed_in_the_background_ends_the_run(strategy, silent, tmp_path, end):
    """With its step and the last one that is whole; that one is there, and nothing of the other. The disk is full from
    the third step on."""
    folder, run, full = RunFolder.open(tmp_path, 3, SETTINGS, resume=False), run_of(strategy), ExitStack()

    class Filling(train.Run):
        def step(self, state, number):
            if number == 2:
                folder.wait()
                full.enter_context(no_file_over(1000))
            return super().step(state, number)

    filling = Filling(run.strategy, run.data)
    with full, pytest.raises(SaveError, match=r"step 3 is not saved, the last that was is of step 2: .*too large"):
        folder.save(strategy, strategy.init(jax.random.key(3)), 2, filling.feed.data)
        train.train(filling, strategy.init(jax.random.key(3)), 0, end, folder, 3, silent, train.Stop())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.json", "step_000002"]
    assert 3 <= len(filling.losses) < 500


def test_a_failed_save_does_not_keep_the_next_from_being_whole(strategy, tmp_path):
    """A loop that goes on after the error has the next checkpoint."""
    folder, state = RunFolder.open(tmp_path, 3, SETTINGS, resume=False), strategy.init(jax.random.key(3))
    data = run_of(strategy).feed.data
    (tmp_path / "step_000001").mkdir()
    (tmp_path / "step_000001" / "notes.txt").write_text("of somebody else", encoding="utf-8")
    with pytest.raises(SaveError, match="step 1 is not saved"):
        folder.save(strategy, state, 1, data)
    next(data), next(data)
    folder.save(strategy, state, 2, data)
    folder.wait()
    assert folder.restore(strategy, data)[0] == 2


def test_the_picture_has_every_strategy_and_how_far_it_is_from_one_device(silent, tmp_path, monkeypatch):
    """A curve of each, of which one is of other losses, under the name of its model."""
    drawn, title = {}, "mlp (jax)"
    monkeypatch.setattr(train, "draw", lambda curves, path: drawn.update(curves) or draw(curves, path))
    compared = {title: {page: choose(page, "jax", "mlp", None, 64) for page in PAGES}}
    monkeypatch.setattr(train, "panels", lambda framework, model, batch: compared)
    train.draw_all("mlp", "jax", 2, 1, 64, 0, tmp_path / "losses.svg", silent)
    assert list(drawn[title]) == list(PAGES)
    np.testing.assert_allclose(drawn[title]["fsdp_shard_map"], drawn[title]["single_device"], rtol=1e-5)
    said = (tmp_path / "losses.svg").read_text(encoding="utf-8")
    assert all(f"<!-- {words} -->" in said for words in (*PAGES, f"{title}: loss"))
    assert [path.name for path in tmp_path.iterdir()] == ["losses.svg"]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("none/l.svg", "expected a folder in which files can be written, saw No such file or directory"),
        ("file/l.svg", "expected a folder in which files can be written, saw Not a directory"),
        ("losses", "expected a name that ends with one of .eps, "),
    ],
)
def test_a_picture_that_cannot_be_drawn_is_refused_before_any_training(silent, tmp_path, monkeypatch, name, told):
    """43 pages take minutes."""
    (tmp_path / "file").touch()
    monkeypatch.delattr(train, "panels")
    with pytest.raises(ValueError, match=re.escape(f"--compare {tmp_path / name}: {told}")):
        train.draw_all("", "jax", 2, 1, 0, 0, tmp_path / name, silent)


def test_a_model_that_no_page_takes_has_no_picture(silent, tmp_path):
    """It is named."""
    with pytest.raises(ValueError, match="no page takes model 'gtp' in framework 'jax'"):
        train.draw_all("gtp", "jax", 2, 1, 64, 0, tmp_path / "losses.svg", silent)
