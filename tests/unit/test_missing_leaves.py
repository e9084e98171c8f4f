"""A leaf is taken out of what other checkpointers of Orbax write, too: of their own checkpoint, which they read."""

import json
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as v0
import pytest
from orbax.checkpoint import v1

from meshproof.observing.missing_leaves import TREE, observe_missing
from meshproof.observing.seen import NotSupported
from meshproof.observing.state import values_of

STATE = jax.tree.map(
    jnp.asarray, {"empty": {}, "layers": [{"kernel": np.arange(4.0), "bias": np.ones(2)}], "step": np.int32(3)}
)
WANTED = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), STATE)


class Strict:
    """By the tree that it expects."""

    def save(self, folder):
        """Whole."""
        with v0.StandardCheckpointer() as checkpointer:
            checkpointer.save(folder, STATE)

    def restore(self, folder):
        """An error where the trees differ; and of other formats."""
        with v0.StandardCheckpointer() as checkpointer:
            return checkpointer.restore(folder, WANTED)


class Merged(Strict):
    """What is not there keeps its initial value."""

    def restore(self, folder):
        """Nothing is said."""
        if not (folder / TREE).exists():
            raise FileNotFoundError(folder)
        initial = jax.tree.map(jnp.zeros_like, STATE)
        places = v0.checkpoint_utils.construct_restore_args(WANTED)
        return v0.PyTreeCheckpointer().restore(folder, item=initial, transforms={}, restore_args=places)


class Managed(Strict):
    """One step of a run, with what JSON holds beside it."""

    def manager(self, folder):
        """Of a run."""
        return v0.CheckpointManager(folder)

    def save(self, folder):
        """As step 3."""
        with self.manager(folder) as manager:
            of = v0.args.Composite(state=v0.args.StandardSave(STATE), told=v0.args.JsonSave({"epoch": 1}))
            manager.save(3, args=of)
            manager.wait_until_finished()

    def restore(self, folder):
        """The last."""
        with self.manager(folder) as manager:
            wanted = v0.args.StandardRestore(WANTED)
            return manager.restore(manager.latest_step(), args=v0.args.Composite(state=wanted)).state


class Summed(Strict):
    """Refuses a file that is not as it was written."""

    def save(self, folder):
        """And what its tree was."""
        super().save(folder)
        (folder / "sum").write_text((folder / TREE).read_text())

    def restore(self, folder):
        """After a look at it."""
        if (folder / "sum").read_text() != (folder / TREE).read_text().replace(" ", ""):
            raise ValueError("another sum")
        return super().restore(folder)


class FoundAllTheSame(Strict):
    """By what arrays there are, whatever is listed."""

    def restore(self, folder):
        """The state, as if it were read from them."""
        if not (folder / TREE).exists():
            raise FileNotFoundError(folder)
        return STATE


def missing(strategy, folder):
    """What is seen of it."""
    strategy.save(folder / "whole")
    whole = values_of(STATE, ())
    return observe_missing(SimpleNamespace(strategy=strategy, model=()), folder, whole)


@pytest.mark.parametrize("strategy", [Strict(), Managed()], ids=["standard", "manager"])
def test_a_strict_restore_names_what_is_missing(strategy, tmp_path):
    """The first leaf, and the last; no empty node is one."""
    first, last = missing(strategy, tmp_path)
    assert {first.leaf, last.leaf} <= {"layers/0/kernel", "layers/0/bias", "step"} and first.leaf != last.leaf
    for each in (first, last):
        assert each.leaf.rpartition("/")[2] in each.error and "do not match" in each.error


def test_a_leaf_that_keeps_its_initial_value_is_seen(tmp_path):
    """Nothing is raised."""
    found = missing(Merged(), tmp_path)
    assert len(found) == 2 and all(each.error is None for each in found)


def test_what_orbax_writes_anew_is_taken_first(tmp_path):
    """By its present version."""
    state = {"a": np.ones(2), "b": np.ones(3)}
    strategy = SimpleNamespace(
        save=lambda folder: v1.save(folder, state),
        restore=lambda folder: v1.load(folder, jax.tree.map(np.zeros_like, state)),
    )
    assert [each.leaf for each in missing(strategy, tmp_path)] == ["a", "b"] and (tmp_path / "1").exists()


@pytest.mark.parametrize(
    "text",
    ["[]", "{", json.dumps({"tree_metadata": {"a": 1}}), json.dumps({"tree_metadata": {}})],
    ids=lambda text: text,
)
def test_what_lists_no_leaves_is_not_judged(text, tmp_path):
    """Nor is what refuses any change."""

    class Foreign(Strict):
        def save(self, folder):
            folder.mkdir()
            (folder / TREE).write_text(text)

    assert isinstance(missing(Foreign(), tmp_path), NotSupported)


def test_a_leaf_that_is_found_all_the_same_is_not_missed(tmp_path):
    """Nothing can be said of it."""
    assert isinstance(missing(FoundAllTheSame(), tmp_path), NotSupported)


def test_what_is_held_to_sums_is_not_judged(tmp_path):
    """An error that names a file is none that names a leaf."""
    found = missing(Summed(), tmp_path)
    assert (
        isinstance(found, NotSupported) and "restore does not read what orbax.checkpoint.v1.save writes" in found.reason
    )
