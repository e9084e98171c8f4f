"""Of which cases damaged checkpoints are observed, and that a `restore` which takes one for whole is seen."""

import subprocess
import sys

import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from meshproof.cases import Case
from meshproof.contract import Contract
from meshproof.observing.seen import NotExercised
from meshproof.observing.session import observe
from tests.implementations.minimal import Trainer
from tests.implementations.odd import odd


def case(strategy):
    """The case of a strategy on one device."""
    return Case("line", strategy, {"data": 1}, "cpu")


def test_of_few_cases_damage_is_observed_of_each():
    """One class may restore by what a strategy is called: the sick one is not behind the healthy ones."""

    class Branching(Trainer):
        contract = Contract(parameters={"*": PartitionSpec()}, optimizer_state={"*": PartitionSpec()})

        def __init__(self, name):
            super().__init__()
            self.name = name

        def save(self, state, folder):
            folder.mkdir()
            np.save(folder / "w.npy", np.asarray(state["w"]))

        def restore(self, folder):
            try:
                return {"w": jnp.asarray(np.load(folder / "w.npy"))}
            except (OSError, ValueError, EOFError):
                if self.name == "zero1":
                    return {"w": jnp.zeros(())}
                raise

    cases = [case(Branching(name)) for name in ("fsdp", "zero1")]
    healthy, sick = (observe(each, cases).training.checkpoints.damaged for each in cases)
    assert not [each for each in healthy if each.difference]
    assert [each for each in sick if each.difference]


def test_damage_is_observed_of_the_first_of_its_kind(monkeypatch):
    """And of another variant's, whose files may be others: a `restore` that takes a torn file for whole is seen."""
    monkeypatch.setattr("meshproof.chosen.FEW", 0)

    def save(state, folder):
        folder.mkdir()
        np.save(folder / "w.npy", np.asarray(state["w"]))

    def restore(folder):
        try:
            return {"w": jnp.asarray(np.load(folder / "w.npy"))}
        except (OSError, ValueError, EOFError):
            return {"w": jnp.zeros(())}

    more = {}, {"model": "other"}, {"variant": "ema"}, {"model": "other"}
    cases = [case(odd(save=save, restore=restore, **each)) for each in more]
    first, other, variant, again = (observe(each, cases).training.checkpoints for each in cases)
    for seen in (first, variant):
        assert "'w'" in next(damaged.difference for damaged in seen.damaged if damaged.difference)
    assert all(isinstance(each, NotExercised) for each in (other.damaged, other.background.whole, other.whole))
    assert other.restored.passed and other.continued.passed
    assert isinstance(again.restored, NotExercised) and isinstance(again.elsewhere, NotExercised)


def test_what_a_restore_always_loses_is_no_damage():
    """CKP-1 says so; whoever reads of damage would look in the wrong place. A torn file is told all the same."""

    def save(state, folder):
        folder.mkdir()
        np.save(folder / "w.npy", np.asarray(state["w"]))
        (folder / "comment").write_text("read by nobody")

    def restore(folder):
        return {"w": jnp.asarray(np.load(folder / "w.npy")) + 1}

    def forgives(folder):
        try:
            return restore(folder)
        except (OSError, ValueError, EOFError):
            return {"w": jnp.zeros(())}

    loses, forgiving = (case(odd(save=save, restore=each)) for each in (restore, forgives))
    seen = observe(loses, [loses]).training.checkpoints
    assert not seen.restored.passed and seen.damaged and not [each for each in seen.damaged if each.difference]
    told = [each.file for each in observe(forgiving, [forgiving]).training.checkpoints.damaged if each.difference]
    assert told and set(told) == {"w.npy"}


def test_what_is_printed_is_written_though_the_disk_is_full(tmp_path):
    """Into a file that is longer than any may be: else an error that is only printed would be raised by that."""
    source = (
        "from meshproof.observing.background_saves import no_file_over; from pathlib import Path\n"
        "with no_file_over(100):\n"
        "    print('warning: not saved', flush=True)\n"
        "    try: Path('file').write_bytes(bytes(101))\n"
        "    except OSError as error: print(error.strerror)\n"
        "print('afterwards', flush=True)\n"
    )
    log = tmp_path / "log"
    log.write_text("x" * 1000)
    with log.open("a") as said:
        subprocess.run([sys.executable, "-c", source], cwd=tmp_path, stdout=said, stderr=said, check=True)
    assert log.read_text().strip("x").splitlines() == ["warning: not saved", "File too large", "afterwards"]
