"""Who restores whose checkpoints: a partner must be a trainer of the same state, on devices that are there."""

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from meshproof.cases import Case
from meshproof.observing import checkpoints
from meshproof.observing.resharding import Saved, observe_resharding
from meshproof.observing.seen import NotSupported
from meshproof.observing.state import kinds_of, layout_of, values_of
from meshproof.observing.subject import Subject
from reference_impl.lifecycle import checkpointing


class Keeps:
    """A state of one matrix over the first axis, with an optional other trainer for one device."""

    framework, model, variant = "jax", "matrix", ""

    def __init__(self, name, devices, rows=16, alone=None):
        self.name, self.devices, self.rows = name, devices, rows
        if alone:
            self.single_device = lambda dtype: alone

    def place(self, make):
        """On its devices."""
        mesh = jax.make_mesh((self.devices,), ("data",), axis_types=(AxisType.Auto,))
        return {"w": make(NamedSharding(mesh, PartitionSpec("data")))}

    def abstract_state(self):
        """Its shape and sharding."""
        return self.place(lambda to: jax.ShapeDtypeStruct((self.rows, 4), np.float32, sharding=to))

    def init(self, key):
        """Numbers that differ."""
        return self.place(lambda to: jax.device_put(np.arange(self.rows * 4, dtype=np.float32).reshape(-1, 4), to))

    def train_step(self, state, batch):
        """Nothing."""
        return state, {"loss": 0.0}

    def batches(self, count):
        """Of one example each."""
        return [{"x": np.zeros(1)} for _ in range(count)]

    def save(self, state, folder):
        """By the book."""
        checkpointing.save(state, folder)

    def restore(self, folder):
        """To where its state is."""
        return checkpointing.restore(self.abstract_state(), folder)


class Unreadable(Keeps):
    """Saves as the others, and restores nothing."""

    def restore(self, folder):
        """Never."""
        raise ValueError(f"{folder.name} has too many devices")


def seen(tmp_path, *strategies, back=True):
    """What is observed of the first of these strategies."""
    cases = [Case(f"{each.name}@data={each.devices}", each, {"data": each.devices}, "cpu") for each in strategies]
    subject = Subject(cases[0], cases)
    state = strategies[0].init(None)
    strategies[0].save(state, tmp_path / "whole")
    saved = Saved(values_of(state, ()), kinds_of(state))
    return observe_resharding(subject, tmp_path / "whole", saved, layout_of(state), back)


def ways(found):
    """Who saved and who restored."""
    return [(each.saved_by, each.restored_by) for each in found]


def test_another_mesh_comes_before_another_strategy(tmp_path):
    """One partner of each kind, there and back; of strategies one on another mesh first."""
    found = seen(tmp_path, Keeps("rows", 8), Keeps("other", 8), Keeps("third", 2), Keeps("rows", 4))
    own, mesh, other = "rows@data=8", "rows@data=4", "third@data=2"
    assert ways(found) == [(own, mesh), (mesh, own), (own, other), (other, own)]
    assert not any(each.problems for each in found)


def test_the_way_back_may_be_left_out(tmp_path):
    """Each of many cases is the partner of another one."""
    found = seen(tmp_path, Keeps("rows", 8), Keeps("third", 2), Keeps("rows", 4), back=False)
    assert ways(found) == [("rows@data=8", "rows@data=4"), ("rows@data=8", "third@data=2")]


def test_the_trainer_on_one_device_is_a_partner(tmp_path):
    """Where an implementation has one strategy alone."""
    found = seen(tmp_path, Keeps("rows", 8, alone=Keeps("rows", 1)))
    assert [each.restored_by for each in found] == ["what single_device returns", "rows@data=8"]


def test_an_error_is_told_with_its_place(tmp_path):
    """And nothing is saved from a state that was not restored."""
    [only] = seen(tmp_path, Keeps("rows", 8), Unreadable("other", 4))
    assert only.restored_by == "other@data=4"
    [told] = only.problems
    assert "expected the saved state, saw ValueError: whole has too many devices" in told and "in restore" in told


@pytest.mark.parametrize(
    ("strategies", "told"),
    [
        ([Keeps("rows", 8)], "there is nothing else to restore it by"),
        ([Keeps("rows", 8), Keeps("rows", 64)], "on this mesh or another that this host has the devices for (8)"),
        (
            [Keeps("rows", 8), Keeps("wider", 8, rows=32)],
            "the state of wider@data=8 is another: ['w'] is float32[32, 4] there, and float32[16, 4] here",
        ),
        ([Keeps("rows", 8, alone=object())], "what single_device returns has no save and no restore"),
    ],
    ids=["alone", "too few devices", "another state", "one device without checkpoints"],
)
def test_without_a_partner_the_reason_is_told(tmp_path, strategies, told):
    """As not supported: it may be right."""
    found = seen(tmp_path, *strategies)
    assert isinstance(found, NotSupported) and told in found.reason


def test_processes_that_share_no_folder_save_nothing(monkeypatch):
    """They say what to set."""
    monkeypatch.setattr(checkpoints, "gathered", lambda own: ["/absent"] if isinstance(own, str) else [True, own])
    strategy = Unreadable("mine", 8)
    case = Case("mine", strategy, {"data": 8}, "cpu")
    found, _ = checkpoints.observe_checkpoints(Subject(case, [case]), strategy.init(None), {})
    assert found == checkpoints.Checkpoints.unseen(checkpoints.NO_COMMON_FOLDER)
