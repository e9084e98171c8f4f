"""What is judged once for each way of saving is judged of the first strategy that saves so, and of no fewer."""

from types import SimpleNamespace

import pytest

from meshproof.cases import Case, load_cases, saves_anew


class Trainer:
    """It saves somehow."""

    def __init__(self, framework="jax", model="mlp", **members):
        self.framework, self.model = framework, model
        vars(self).update(members)

    def save(self, state, folder):
        """Write it."""

    def restore(self, folder):
        """Read it."""


class Other(Trainer):
    """Of another class, which inherits the functions: what they call may be its own."""


class Overriding(Trainer):
    """It restores otherwise."""

    def restore(self, folder):
        """Read something else."""


def anew(*strategies, targets=("cpu",)):
    """Of each, in this order, whether it is the first that saves its way."""
    cases = [Case(str(place), each, {}, target) for target in targets for place, each in enumerate(strategies)]
    return [saves_anew(case, cases) for case in cases]


def test_one_way_is_judged_once():
    """Of the first strategy, whatever its name or mesh."""
    assert anew(Trainer(), Trainer(name="fsdp"), Trainer(mesh_axes={"data": 4})) == [True, False, False]


@pytest.mark.parametrize(
    "second",
    [
        Other(),
        Overriding(),
        Trainer(framework="nnx"),
        Trainer(model="gpt"),
        Trainer(restore=lambda folder: None),
        Trainer(save_async=lambda state, folder: None),
    ],
    ids=["class", "method", "framework", "model", "function of its own", "member of its own"],
)
def test_another_way_is_judged_too(second):
    """It need not share a fault with the first."""
    assert anew(Trainer(), second, second) == [True, True, False]


def test_namespaces_that_share_functions_save_alike():
    """And others do not, though all are of one class."""
    save, restore = Trainer.save, Trainer.restore
    common = {"framework": "jax", "model": "mlp", "save": save}
    one, two, three = (SimpleNamespace(**common, restore=each) for each in (restore, restore, Overriding.restore))
    assert anew(one, two, three) == [True, False, True]


def test_every_target_has_its_first():
    """What is judged for one says nothing of another."""
    assert anew(Trainer(), Trainer(), targets=("cpu", "native")) == [True, False, True, False]


def test_the_book_saves_in_more_ways_than_one():
    """Every framework and model of it is judged, and not every case."""
    cases = load_cases("reference_impl")
    judged = [case for case in cases if saves_anew(case, cases)]
    kinds = {(case.strategy.framework, case.strategy.model) for case in cases}
    assert {(case.strategy.framework, case.strategy.model) for case in judged} == kinds
    assert len(kinds) <= len(judged) < len(cases) / 2
